"""The values of a study's objectives, at each stage of a trial: before training, after a probe, after training."""

from __future__ import annotations

import math
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
        """The objectives in order, all minimised; None for a unit that failed."""
        return None if values is None else tuple(each.minimised(values[each.name]) for each in self.objectives)
