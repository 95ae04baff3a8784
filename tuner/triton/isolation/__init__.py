"""Compilation and first runs of configurations in other processes, which may hang or crash."""
