"""Attention blocks in which each position reads only some of the other positions."""
