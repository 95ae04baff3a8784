"""Tasks made of random symbols, each of which needs one mechanism: recall by position, by content, or over a gap."""
