"""Blocks that treat every position alone."""
