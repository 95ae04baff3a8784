"""The blocks: one a file, grouped by what they do."""
