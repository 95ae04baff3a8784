"""Objectives: what a search optimises, found by their names. A new one is one file."""

from nas.objectives import costs, metrics  # registered from the start: to find them, no other module is imported
from nas.objectives.contract import Direction, Objective
from nas.objectives.registry import make, names

__all__ = ["Direction", "Objective", "costs", "make", "metrics", "names"]
