"""Convolution blocks: each position reads the positions near it."""
