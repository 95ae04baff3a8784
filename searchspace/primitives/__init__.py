"""All blocks, one per file, in folders by what they do."""
