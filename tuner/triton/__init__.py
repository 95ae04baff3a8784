"""Tunes a user's own Triton kernels, as a replacement of `triton.autotune`."""
