"""Criteria: how far a model's outputs are from their targets. Each criterion is one file, found by its name."""

from nas.criteria.registry import criteria, make

__all__ = ["criteria", "make"]
