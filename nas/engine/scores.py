"""The values of a study's objectives: before a trial is trained, after a probe, after training, and later."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from nas.objectives.contract import NoValue, Objective
from nas.store import Unit, UnitKind
from nas.work import Failure, FailureKind, Outcome
from searchspace.model.architecture import Architecture
from searchspace.space.point import Point


class Scores:
    """Evaluates the objectives of one study."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self.objectives = objectives
        self.probes = [each for each in objectives if each.stage == "probe"]

    def before(self, architecture: Architecture) -> tuple[dict[str, float], dict[str, Any], tuple[str, str] | None]:
        """The costs of an architecture, how measured ones were found, and (kind, text) if one has no value."""
        values: dict[str, float] = {}
        evidence: dict[str, Any] = {}
        try:
            for each in self.objectives:
                if each.stage == "cost":
                    values[each.name] = each.evaluate(architecture)
                    if (found := each.evidence(architecture)) is not None:
                        evidence[each.name] = found
        except NoValue as error:
            return {}, {}, (FailureKind.NO_VALUE.value, str(error))
        return values, evidence, None

    def after(
        self, unit: Unit, architecture: Architecture, outcome: Outcome
    ) -> tuple[dict[str, float], Failure | None]:
        """The values that a unit gave, or its failure. A value that is not finite is a failure too.

        Raises UsageError if the metrics lack one that an objective needs.
        """
        if outcome.failure is not None:
            return {}, outcome.failure
        told = outcome.evidence
        if other := [why for each in self.probes if each.name in told and (why := each.unlike(told[each.name]))]:
            return {}, Failure(FailureKind.NO_VALUE, other[0])
        values = self._values(unit, architecture, outcome.metrics)
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            return values, Failure(FailureKind.NOT_FINITE, f"{', '.join(bad)} came out as {values[bad[0]]}.")
        return values, None

    def _values(self, unit: Unit, architecture: Architecture, metrics: Mapping[str, float]) -> dict[str, float]:
        if unit.kind is UnitKind.PROBE:
            return {each.name: each.evaluate(architecture, metrics) for each in self.probes}
        values: dict[str, float] = {}
        for each in self.objectives:
            if each.stage == "later":
                continue  # the store has it, as soon as the machine has found it
            if (each.settled or each.stage == "probe") and each.name in unit.cheap_values:
                values[each.name] = unit.cheap_values[each.name]  # a second look would give another value
            elif each.stage != "probe":  # the finals are not probed
                values[each.name] = each.evaluate(architecture, metrics)
        return values

    def candidate(self, point: Point) -> tuple[float | None, ...]:
        """The objectives of a point that a strategy considers, in order and all minimised.

        None for those that need training or a probe, that are measured, or that have no value for this point.
        """
        return tuple(self._candidate(each, point.architecture) for each in self.objectives)

    def _candidate(self, objective: Objective, architecture: Architecture) -> float | None:
        if objective.stage != "cost" or objective.settled:
            return None  # a measured value differs from run to run, so proposals from it could not be replayed
        try:
            return objective.minimised(objective.evaluate(architecture))
        except NoValue:
            return None

    def minimised(self, values: Mapping[str, float] | None) -> tuple[float, ...] | None:
        """The objectives in order, all minimised; None for a unit that failed. NaN for those that come later."""
        return None if values is None else tuple(_minimised(each, values) for each in self.objectives)


def _minimised(objective: Objective, values: Mapping[str, float]) -> float:
    return math.nan if objective.stage == "later" else objective.minimised(values[objective.name])


class Later:
    """The values that machines outside the cluster found for the trials of one arm, in the order of the log.

    A trial may have its result before such a value. Until then it counts with the median of the known ones, so that the
    value says nothing about it; if there are none, with 0 like all others. objectives: all of the study.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self.objectives = {place: each for place, each in enumerate(objectives) if each.stage == "later"}
        self.found: dict[int, dict[int, float]] = {place: {} for place in self.objectives}  # place -> trial -> value
        self.none: set[int] = set()  # trials that do not run on one of the machines

    def tell(self, unit: Unit) -> None:
        """A machine found a value, or that there is none."""
        place = unit.rung - 1
        if unit.values is None:
            self.none.add(unit.number)
        elif place in self.objectives:
            objective = self.objectives[place]
            self.found[place][unit.number] = objective.minimised(unit.values[objective.name])

    def filled(self, number: int, values: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """`values` of a trial with what is known by now; None if the trial has none on a machine."""
        if values is None or number in self.none:
            return None
        return tuple(self._value(place, number) if place in self.found else each for place, each in enumerate(values))

    def _value(self, place: int, number: int) -> float:
        known = self.found[place]
        return known[number] if number in known else statistics.median(known.values()) if known else 0.0
