"""Checks of the options of tasks, with messages that name the option."""

from __future__ import annotations

from typing import Any


def whole_number(name: str, value: Any, low: int = 1) -> None:
    """Raise ValueError unless `value` is an int of at least `low`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, but got {value!r}.")


def one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of `known`."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, but got {value!r}.")


def fractions(name: str, value: Any, count: int) -> tuple[float, ...]:
    """`value` as `count` fractions above 0 that add up to 1."""
    numbers = [part for part in value if isinstance(part, int | float)] if isinstance(value, list | tuple) else []
    if len(numbers) != count or min(numbers) <= 0 or abs(sum(numbers) - 1) > 1e-9:
        raise ValueError(f"{name} must be {count} fractions above 0 that add up to 1, but got {value!r}.")
    return tuple(numbers)
