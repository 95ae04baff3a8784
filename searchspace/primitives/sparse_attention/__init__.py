"""Attention blocks that read a part of the positions."""
