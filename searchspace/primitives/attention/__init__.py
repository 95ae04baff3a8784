"""Attention blocks: each position reads other positions, weighted by their content."""
