"""Tasks made of random symbols. Each tests one mechanism: recall by position, by content, or over a gap."""
