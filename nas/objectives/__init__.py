"""What to score. Each objective is one file, found by itself."""

from nas.objectives.contract import Direction, Objective
from nas.objectives.registry import make, names

__all__ = ["Direction", "Objective", "make", "names"]
