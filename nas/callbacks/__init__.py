"""Callbacks: where a training reports its numbers. Each callback is one file, found by its name."""
