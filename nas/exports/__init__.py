"""Architectures as files for other tools."""
