"""Attention that reads a part of the keys: windows, blocks, strides, hashes."""
