"""Tunes a user's own Triton kernel in place of `triton.autotune`."""
