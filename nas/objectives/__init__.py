"""Objectives: what a search optimises. Each is one file, found by its name."""

from nas.objectives.contract import Direction, Objective
from nas.objectives.registry import make, names

__all__ = ["Direction", "Objective", "make", "names"]
