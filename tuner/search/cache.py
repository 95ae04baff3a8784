"""The results of one operation, or of one user's kernel, on one device, as far as they are still valid.

New ones are written at once, in one transaction per measurement, so that a killed process loses none. Every measurement
has a problem, a choice and an outcome; those that were taken in turns share a mark, `turns`, of the form
EFFORT/SIGNATURE/ID.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernels.dispatch.device import Device
from kernels.dispatch.registry import Choice, Operation, Problem
from nas.store.records import Measurement
from tuner import problems
from tuner.measure.measure import timing
from tuner.outcome import TEMPORARY, Kind, Outcome
from tuner.search.effort import rank
from tuner.search.results import EVERY, FORGOTTEN, Results

TRIES = 3  # sessions that try a configuration whose failures may be temporary


@dataclass(frozen=True)
class Known:
    """The newest measurement of a choice on a problem. turns: the comparison it belongs to, None if to none. tries: how
    often it has failed in a row, if the last failure may have been temporary."""

    outcome: Outcome
    milliseconds: float | None
    turns: str | None = None
    tries: int = 0

    @property
    def may_be_tried_again(self) -> bool:
        """Whether it failed in a way that may be temporary, and not too often."""
        return 0 < self.tries < TRIES


class Cache:
    """source_of: the hash of an implementation's code as it is now, by its name; a measurement of other code is not
    valid. threads: of torch on a CPU, None for a user's kernel."""

    def __init__(
        self,
        results: Results,
        operation: str,
        device: Device,
        source_of: Callable[[str], str],
        threads: int | None = None,
    ) -> None:
        self.results, self.operation, self.device, self.threads = results, operation, device, threads
        self.source_of = source_of
        self.written = 0  # measurements, by this object
        self._read_of: set[Problem | None] = set()  # the problems whose rows were read; None: all of them
        self._known: dict[Problem, dict[Choice, Known]] = {}
        self._finals: dict[Problem, dict[str, dict[Choice, Known]]] = {}

    def known(self, problem: Problem) -> dict[Choice, Known]:
        """The newest measurement of every choice."""
        self._read(problem)
        return self._known.setdefault(problem, {})

    def finals(self, problem: Problem) -> dict[str, dict[Choice, Known]]:
        """Every comparison, by its `turns`, oldest first."""
        self._read(problem)
        return self._finals.setdefault(problem, {})

    def compared(self, problem: Problem, signature: str, effort: str | None = None) -> dict[Choice, Known] | None:
        """The newest comparison of the candidates with this signature, with at least that effort; None if there is
        none."""
        for turns, finals in reversed(self.finals(problem).items()):
            mark, found, *_ = turns.split("/")
            if found == signature and (effort is None or rank(mark) >= rank(effort)):
                return finals
        return None

    def decided(self) -> list[Problem]:
        """The problems for which there is a comparison."""
        self._read(None)
        return [problem for problem, finals in self._finals.items() if finals]

    @cached_property
    def rows_of_this_code(self) -> list[Measurement]:
        """The valid measurements of all devices when they were first needed, oldest first, without failures that may be
        temporary."""
        rows = self.results.rows(self.operation)
        return [row for row in rows if self._is_valid(row) and outcome_of(row).kind not in TEMPORARY]

    def write(self, problem: Problem, outcomes: Mapping[Choice, Outcome], mark: str | None = None) -> None:
        """Keep outcomes; with `mark` they were taken in turns."""
        self._read(problem)
        turns = None if mark is None else f"{mark}/{uuid.uuid4().hex[:12]}"
        text = problems.text(problem, self.threads)
        rows = [
            row(self.operation, text, problem.dtype, choice, self.source_of(choice.implementation), outcome, turns)
            for choice, outcome in outcomes.items()
        ]
        self.results.add(self.device.to_dict(), rows)
        for choice, outcome in outcomes.items():
            self._take(problem, choice, outcome, turns)
        self.written += len(outcomes)

    def forget(self, problem: Problem | None = None) -> None:
        """Measure a problem again, or every problem: earlier measurements on this device are no longer valid."""
        self._read(problem)
        text = EVERY if problem is None else problems.text(problem, self.threads)
        dtype = "" if problem is None else problem.dtype
        mark = Measurement(
            operation=self.operation,
            problem=text,
            dtype=dtype,
            implementation="",
            configuration="{}",
            source="",
            failure=FORGOTTEN,
        )
        self.results.add(self.device.to_dict(), [mark])
        self._forget(problem)

    def rows_of(self, problem: Problem) -> list[Measurement]:
        """The rows of a problem and those of EVERY problem, valid or not, on all devices."""
        return self.results.rows(self.operation, problems.text(problem, self.threads))

    def _forget(self, problem: Problem | None) -> None:
        for known in (self._known, self._finals):
            known.clear() if problem is None else known.pop(problem, None)

    def _read(self, problem: Problem | None) -> None:
        """Take what is stored of a problem; of all problems if it is None."""
        if {problem, None} & self._read_of:
            return
        self._read_of.add(problem)
        if problem is None:
            self._forget(None)  # what was read of single problems is among all the rows
        for each in self.results.rows(self.operation) if problem is None else self.rows_of(problem):
            if each.device != self.device.key:
                continue
            found = problem
            if each.problem != EVERY:
                found = problems.of_text(self.operation, each.dtype, each.problem)
                if found is None or problem not in (None, found) or each.problem != problems.text(found, self.threads):
                    continue
            if each.failure == FORGOTTEN:
                self._forget(found)
            elif found is not None and self._is_valid(each):
                self._take(found, choice_of(each), outcome_of(each), each.turns)

    def _is_valid(self, row: Measurement) -> bool:
        return bool(row.source) and row.source == self.source_of(row.implementation)

    def _take(self, problem: Problem, choice: Choice, outcome: Outcome, turns: str | None) -> None:
        before = self._known.get(problem, {}).get(choice)
        tries = 0 if outcome.kind not in TEMPORARY else 1 + (before.tries if before else 0)
        known = Known(outcome, timing(outcome.samples).median if outcome.samples else None, turns, tries)
        self._known.setdefault(problem, {})[choice] = known
        if turns is not None:
            self._finals.setdefault(problem, {}).setdefault(turns, {})[choice] = known


def row(
    operation: str, problem: str, dtype: str, choice: Choice, source: str, outcome: Outcome, turns: str | None = None
) -> Measurement:
    """The row of an outcome; problem: as text."""
    found = timing(outcome.samples) if outcome.samples else None
    return Measurement(
        operation=operation,
        problem=problem,
        dtype=dtype,
        implementation=choice.implementation,
        configuration=problems.configuration_text(choice),
        source=source,
        milliseconds=found.median if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        samples=tuple(outcome.samples),
        failure=None if found else outcome.kind.value,
        message=outcome.message or None,
        turns=turns,
        resources=outcome.resources,
    )


def choice_of(row: Measurement) -> Choice:
    """The choice that was measured."""
    return Choice.of(row.implementation, json.loads(row.configuration))


def outcome_of(row: Measurement) -> Outcome:
    """The outcome of the measurement."""
    message = row.message or ""
    if row.milliseconds is not None:
        return Outcome(Kind.TIMED, tuple(row.samples) or (row.milliseconds,), message, resources=row.resources)
    return Outcome(Kind(row.failure) if row.failure in set(Kind) else Kind.CRASHED, message=message)


def valid(known: Mapping[Choice, Known]) -> dict[Choice, float]:
    """Milliseconds of the choices that were timed."""
    return {choice: each.milliseconds for choice, each in known.items() if each.milliseconds is not None}


def fastest(times: Mapping[Choice, float], count: int) -> Sequence[Choice]:
    """At most `count` choices, the fastest first."""
    return sorted(times, key=lambda choice: (times[choice], str(choice)))[:count]


def cache_of(results: Results, operation: Operation, device: Device, threads: int) -> Cache:
    """The results of one of our operations on a device; each implementation has its own hash."""
    made = operation.implementations
    return Cache(results, operation.name, device, lambda name: made[name].source if name in made else "", threads)
