"""Checks that configurations share; each names the field, what it must be, and what it was."""

from __future__ import annotations


def at_least(low: int, **values: int | None) -> None:
    """Every value that is given is `low` or more."""
    for name, value in values.items():
        if value is not None and value < low:
            raise ValueError(f"{name} must be at least {low}, but got {value}.")


def probability(*, below_one: bool = True, **values: float) -> None:
    """Every value lies in [0, 1), or in [0, 1] without `below_one`."""
    for name, value in values.items():
        if not 0 <= value <= 1 or (below_one and value == 1):
            raise ValueError(f"{name} must lie in [0, 1{')' if below_one else ']'}, but got {value}.")


def not_empty(**values: tuple) -> None:
    """Every list holds something."""
    for name, value in values.items():
        if not value:
            raise ValueError(f"{name} must hold at least one block, but it is empty.")
