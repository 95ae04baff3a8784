"""Attention blocks whose cost grows linearly with the length."""
