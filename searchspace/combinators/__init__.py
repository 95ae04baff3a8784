"""Combinators: blocks that contain other blocks."""
