"""Blocks in which positions read other positions by content."""
