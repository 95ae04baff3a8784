"""Optimisers by name. Each optimiser is one file."""

from nas.training.optimisers.registry import make, optimisers

__all__ = ["make", "optimisers"]
