"""Holes as Optuna's distributions, and values of holes as Optuna's parameters, both ways.

Options count by their place, for Optuna takes `true` and 1 for the same. A number whose logarithm is searched in steps,
which Optuna does not have, is a place between 0 and 1.
"""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from searchspace.language import holes
from searchspace.tree import Choice, Floats, Hole, Integers


def distribution(hole: Hole) -> BaseDistribution:
    """What Optuna draws from in place of `hole`."""
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
    """A value for `hole` that Optuna chose: an option's label or a number."""
    drawn = distribution(hole)
    if isinstance(drawn, CategoricalDistribution):
        return holes.labels(hole)[trial.suggest_categorical(path, drawn.choices)]  # type: ignore
    if isinstance(drawn, IntDistribution):
        return trial.suggest_int(path, drawn.low, drawn.high, log=drawn.log, step=drawn.step)
    assert isinstance(drawn, FloatDistribution) and not isinstance(hole, Choice)
    number = trial.suggest_float(path, drawn.low, drawn.high, log=drawn.log, step=drawn.step)
    return holes.from_unit(hole, number if _is_place(hole) else holes.unit(hole, number))


def parameter(hole: Hole, value: Any) -> Any:
    """What Optuna would have drawn for `hole` to be filled with `value`: the inverse of `suggest`."""
    if isinstance(hole, Choice):
        known = holes.labels(hole)
        return next(place for place, label in enumerate(known) if holes.same_scalar(label, value))
    return holes.unit(hole, value) if _is_place(hole) else value


def _is_place(hole: Integers | Floats) -> bool:
    smooth = 1 if isinstance(hole, Integers) else None
    return hole.log and hole.step != smooth
