"""Tasks made of random symbols. Each needs one mechanism: recall by position, by content, or over a gap."""
