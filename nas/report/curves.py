"""Learning curves of the trials of a study as rows for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nas.report.trials import best, curve

if TYPE_CHECKING:
    from nas.store import Reader, Study, Trial

MARKS = "▁▂▃▄▅▆▇█"
WIDTH = 40  # points that a line shows
SHOWN = 10  # of the best trials, if none are chosen

Curve = list[tuple[int, float | None]]


def chosen(store: Reader, study: Study, numbers: Sequence[int], *, every: bool = False) -> list[tuple[Trial, Curve]]:
    """The trials `numbers`, or every trial, or the best ten and those that run, each with its curve.

    Raises StoreError for a trial that does not exist.
    """
    if numbers:
        trials = [store.trial(study.id, number) for number in numbers]
    elif every:
        trials = store.trials(study.id, light=True)
    else:
        trials = best(store, study, None, SHOWN) + store.trials(study.id, states=("running",), light=True)
    different = {each.number: each for each in trials}.values()
    return [(each, curve(store, study, each.number)) for each in different]


def row(trial: Trial, points: Curve) -> dict[str, Any]:
    """The first and the last training loss of a trial, and its curve as a line of bars."""
    values = [value for _, value in points if value is not None]
    first, last = (values[0], values[-1]) if values else (None, None)
    steps = points[-1][0] if points else 0
    return {"trial": trial.shown, "steps": steps, "first": first, "last": last, "training loss": drawn(values)}


def drawn(values: Sequence[float]) -> str:
    """The values as a line of bars, the highest one at the top."""
    if not values:
        return ""
    count = min(WIDTH, len(values))
    some = [values[place * (len(values) - 1) // max(1, count - 1)] for place in range(count)]
    low, high = min(some), max(some)
    scale = (len(MARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(MARKS[round((value - low) * scale)] for value in some)
