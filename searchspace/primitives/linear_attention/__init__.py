"""Attention blocks whose cost grows linearly with the sequence length."""
