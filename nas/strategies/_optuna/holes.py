"""Conversion between holes and Optuna's distributions, and between values of holes and Optuna's parameters.

A choice of numbers is represented by the place of the number when they are sorted. Another option is represented by its
index, because Optuna cannot tell `true` from 1. Optuna has no logarithmic number with steps; such a number is
represented by its position between 0 and 1.
"""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from searchspace.language import holes
from searchspace.tree import Choice, Floats, Hole, Integers


def distribution(hole: Hole) -> BaseDistribution:
    """The distribution that Optuna draws from for `hole`; a choice of numbers is ordered by size."""
    if (numbers := holes.sorted_numbers(hole)) is not None:
        return IntDistribution(0, len(numbers) - 1)
    if isinstance(hole, Choice):
        return CategoricalDistribution(range(len(hole.options)))
    if _is_place(hole):
        return FloatDistribution(0.0, 1.0)
    known = holes.values(hole)
    high: Any = hole.high if known is None else known[-1]  # Optuna warns when the steps do not end at `high`
    if isinstance(hole, Integers):
        return IntDistribution(hole.low, high, log=hole.log, step=hole.step)
    return FloatDistribution(hole.low, high, log=hole.log, step=hole.step)


def suggest(trial: Trial, path: str, hole: Hole) -> Any:
    """The value that Optuna chooses for `hole`: an option's label or a number."""
    drawn = distribution(hole)
    if (numbers := holes.sorted_numbers(hole)) is not None:
        return numbers[trial.suggest_int(path, 0, len(numbers) - 1)]
    if isinstance(drawn, CategoricalDistribution):
        return holes.labels(hole)[trial.suggest_categorical(path, drawn.choices)]  # type: ignore
    if isinstance(drawn, IntDistribution):
        return trial.suggest_int(path, drawn.low, drawn.high, log=drawn.log, step=drawn.step)
    assert isinstance(drawn, FloatDistribution) and not isinstance(hole, Choice)
    number = trial.suggest_float(path, drawn.low, drawn.high, log=drawn.log, step=drawn.step)
    return holes.from_unit(hole, number if _is_place(hole) else holes.unit(hole, number))


def parameter(hole: Hole, value: Any) -> Any:
    """The parameter that Optuna would have drawn if `hole` has `value`: the inverse of `suggest`."""
    if (numbers := holes.sorted_numbers(hole)) is not None:
        return numbers.index(value)
    if isinstance(hole, Choice):
        known = holes.labels(hole)
        return next(place for place, label in enumerate(known) if holes.same_scalar(label, value))
    return holes.unit(hole, value) if _is_place(hole) else value


def _is_place(hole: Integers | Floats) -> bool:
    smooth = 1 if isinstance(hole, Integers) else None
    return hole.log and hole.step != smooth
