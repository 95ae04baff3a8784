"""A line of a few pixels for a cell of a table."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 96, 22


def sparkline(values: Sequence[float]) -> str | None:
    """The path of a line through the values, in a box of 96 x 22 pixels; None for fewer than two."""
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = (WIDTH - 4) / (len(values) - 1)
    points = [f"{2 + i * step:.1f} {2 + (high - value) / span * (HEIGHT - 4):.1f}" for i, value in enumerate(values)]
    return "M" + "L".join(points)
