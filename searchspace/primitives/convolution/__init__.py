"""Blocks in which positions read their neighbours by place."""
