"""What is known on this device: measurements of the study database that are still valid, and new ones written at once.

One transaction a measurement, so that whoever is killed loses none. Without a database it is kept in memory.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.dispatch.registry import Choice, Operation, Problem
from tuner import problems
from tuner.device import Device
from tuner.measure.measure import timing
from tuner.outcome import Kind, Outcome

if TYPE_CHECKING:  # the tuner is used without a database, and must then not load its libraries
    from nas.store import Measurement, Store


@dataclass(frozen=True)
class Known:
    """The newest that is known of a choice on a problem. turns: of which final comparison it is, if of any."""

    outcome: Outcome
    milliseconds: float | None
    turns: str | None = None


class Notebook:
    """Measurements on `device`, on which torch had so many `threads`."""

    def __init__(self, store: Store | None, device: Device, threads: int) -> None:
        self.store, self.device, self.threads = store, device, threads
        self.written = 0  # measurements, by this notebook
        self._known: dict[Problem, dict[Choice, Known]] = {}
        self._finals: dict[Problem, dict[str, dict[Choice, Known]]] = {}
        self._read: set[str] = set()

    def known(self, operation: Operation, problem: Problem) -> dict[Choice, Known]:
        """The newest of every choice whose source is still the same."""
        self._open(operation)
        return self._known.setdefault(problem, {})

    def finals(self, operation: Operation, problem: Problem) -> dict[str, dict[Choice, Known]]:
        """Every final comparison, oldest first, by its `turns`."""
        self._open(operation)
        return self._finals.setdefault(problem, {})

    def decided(self, operation: Operation) -> list[Problem]:
        """The problems that there is a comparison of."""
        self._open(operation)
        return [problem for problem, finals in self._finals.items() if finals and problem.operation == operation.name]

    def write(
        self, operation: Operation, problem: Problem, outcomes: Mapping[Choice, Outcome], mark: str | None = None
    ) -> str | None:
        """Keep outcomes in one transaction; with `mark` they were taken in turns, whose name begins so."""
        self._open(operation)
        turns = None if mark is None else f"{mark}/{uuid.uuid4().hex[:12]}"
        if self.store is not None:
            rows = [self._row(operation, problem, choice, outcome, turns) for choice, outcome in outcomes.items()]
            self.store.add_measurements(self.device.to_dict(), rows)
        for choice, outcome in outcomes.items():
            self._take(problem, choice, outcome, turns)
        self.written += len(outcomes)
        return turns

    def _take(self, problem: Problem, choice: Choice, outcome: Outcome, turns: str | None) -> None:
        median = timing(outcome.samples).median if outcome.samples else None
        known = Known(outcome, median, turns)
        self._known.setdefault(problem, {})[choice] = known
        if turns is not None:
            self._finals.setdefault(problem, {}).setdefault(turns, {})[choice] = known

    def _row(
        self, operation: Operation, problem: Problem, choice: Choice, outcome: Outcome, turns: str | None
    ) -> Measurement:
        from nas.store import Measurement

        implementation = operation.implementations.get(choice.implementation)
        values: dict[str, Any] = {}
        if outcome.samples:
            found = timing(outcome.samples)
            values = {"milliseconds": found.median, "low": found.low, "high": found.high, "samples": outcome.samples}
        return Measurement(
            operation=operation.name,
            problem=problems.text(problem, self.threads),
            dtype=problem.dtype,
            implementation=choice.implementation,
            configuration=problems.configuration_text(choice),
            source=implementation.source if implementation else "",
            failure=None if outcome.samples else str(outcome.kind.value),
            message=outcome.message or None,
            turns=turns,
            **values,
        )

    def _open(self, operation: Operation) -> None:
        if operation.name in self._read:
            return
        self._read.add(operation.name)
        if self.store is None:
            return
        for row in self.store.measurements(operation.name, device=self.device.key):
            problem = problems.of_text(row.operation, row.dtype, row.problem)
            implementation = operation.implementations.get(row.implementation)
            if problem is None or implementation is None or implementation.source != row.source:
                continue
            if row.problem == problems.text(problem, self.threads):
                self._take(problem, choice_of(row), outcome_of(row), row.turns)


def choice_of(row: Measurement) -> Choice:
    """The choice that was measured."""
    return Choice.of(row.implementation, json.loads(row.configuration))


def outcome_of(row: Measurement) -> Outcome:
    """What came of it."""
    if row.milliseconds is not None:
        return Outcome(Kind.TIMED, row.samples or (row.milliseconds,))
    kind = row.failure if row.failure in set(Kind) else Kind.CRASHED
    return Outcome(Kind(kind), message=row.message or "")


def valid(known: Mapping[Choice, Known]) -> dict[Choice, float]:
    """Milliseconds of the choices that have any."""
    return {choice: each.milliseconds for choice, each in known.items() if each.milliseconds is not None}


def fastest(times: Mapping[Choice, float], count: int) -> Sequence[Choice]:
    """So many choices, the fastest first."""
    return sorted(times, key=lambda choice: (times[choice], str(choice)))[:count]
