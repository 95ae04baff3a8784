"""Checks that several configurations use. Each error names the field, the condition and the value."""

from __future__ import annotations


def at_least(low: int, **values: int | None) -> None:
    """Raises ValueError if one of `values` is below `low`; None is allowed."""
    for name, value in values.items():
        if value is not None and value < low:
            raise ValueError(f"{name} must be at least {low}, but got {value}.")


def probability(*, below_one: bool = True, **values: float) -> None:
    """Raises ValueError if one of `values` is outside [0, 1), or outside [0, 1] without `below_one`."""
    for name, value in values.items():
        if not 0 <= value <= 1 or (below_one and value == 1):
            raise ValueError(f"{name} must lie in [0, 1{')' if below_one else ']'}, but got {value}.")


def not_empty(**values: tuple) -> None:
    """Raises ValueError if one of `values` is empty."""
    for name, value in values.items():
        if not value:
            raise ValueError(f"{name} must hold at least one block, but it is empty.")
