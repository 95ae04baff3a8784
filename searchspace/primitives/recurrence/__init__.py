"""Blocks that carry a state from position to position."""
