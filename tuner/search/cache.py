"""The result cache of one operation, or of one user's kernel, on one device.

It holds the measurements in its back end that are still valid. New ones are written at once, in one transaction per
measurement, so that a killed process loses none. Every measurement has a problem, a choice and an outcome; those that
were taken in turns share a mark, `turns`, of the form EFFORT/SIGNATURE/ID.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernels.dispatch import sources
from kernels.dispatch.registry import Choice, Operation, Problem
from tuner import problems
from tuner.device import Device
from tuner.measure.measure import timing
from tuner.outcome import TEMPORARY, Kind, Outcome, of_stored
from tuner.search.backends import Backend
from tuner.search.effort import rank
from tuner.search.row import EVERY, FORGOTTEN, Row

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


@dataclass(frozen=True)
class Sources:
    """Which code measurements are valid for. now: the hash of an implementation's code, by the implementation's name.
    valid: whether measurements of code with some hash are still valid for an implementation."""

    now: Callable[[str], str]
    valid: Callable[[str, str], bool]

    @classmethod
    def of_operation(cls, operation: Operation) -> Sources:
        """Each implementation has its own hash."""
        made = operation.implementations

        def now(implementation: str) -> str:
            return made[implementation].source if implementation in made else ""

        return cls(
            now, lambda implementation, source: implementation in made and sources.valid(source, made[implementation])
        )

    @classmethod
    def of_kernel(cls, source: str) -> Sources:
        """There is only one implementation."""
        return cls(lambda implementation: source, lambda implementation, other: other == source)


class Cache:
    """The results of `operation` on `device`; threads: of torch on a CPU, None for a user's kernel. at_once: read the
    rows of all problems when the first is needed; else those of one problem are read without the others."""

    def __init__(
        self,
        backend: Backend,
        operation: str,
        device: Device,
        sources: Sources,
        threads: int | None = None,
        *,
        at_once: bool = True,
    ) -> None:
        self.backend, self.operation, self.device, self.threads = backend, operation, device, threads
        self.sources, self.at_once = sources, at_once
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

    def compared(
        self, problem: Problem, signatures: Collection[str], effort: str | None = None
    ) -> dict[Choice, Known] | None:
        """The newest comparison whose candidates have one of the `signatures`, with at least that effort; else None."""
        for turns, finals in reversed(self.finals(problem).items()):
            mark, _, rest = turns.partition("/")
            if rest.partition("/")[0] in signatures and (effort is None or rank(mark) >= rank(effort)):
                return finals
        return None

    def decided(self) -> list[Problem]:
        """The problems for which there is a comparison."""
        self._read(None)
        return [problem for problem, finals in self._finals.items() if finals]

    def on_other_devices(self) -> list[Row]:
        """The valid measurements of other devices, oldest first, without failures that may be temporary."""
        return [row for row in self.rows_of_this_code() if row.device != self.device.key]

    def rows_of_this_code(self) -> list[Row]:
        """The valid measurements of all devices, oldest first, without failures that may be temporary."""
        return [row for row in self.rows if self._has_valid_source(row) and outcome_of(row).kind not in TEMPORARY]

    def write(self, problem: Problem, outcomes: Mapping[Choice, Outcome], mark: str | None = None) -> str | None:
        """Keep outcomes; with `mark` they were taken in turns -> the `turns` they share."""
        self._read(problem)
        turns = None if mark is None else f"{mark}/{uuid.uuid4().hex[:12]}"
        text = problems.text(problem, self.threads)
        rows = [
            row(self.operation, text, problem.dtype, choice, self.sources.now(choice.implementation), outcome, turns)
            for choice, outcome in outcomes.items()
        ]
        self.backend.add(self.device, rows)
        for choice, outcome in outcomes.items():
            self._take(problem, choice, outcome, turns)
        self.written += len(outcomes)
        return turns

    def forget(self, problem: Problem | None = None) -> None:
        """Measure a problem again, or every problem: earlier measurements on this device are no longer valid."""
        self._read(problem)
        text = EVERY if problem is None else problems.text(problem, self.threads)
        dtype = "" if problem is None else problem.dtype
        mark = Row(
            operation=self.operation,
            problem=text,
            dtype=dtype,
            implementation="",
            configuration="{}",
            source="",
            failure=FORGOTTEN,
        )
        self.backend.add(self.device, [mark])
        self._forget(problem)

    def _forget(self, problem: Problem | None) -> None:
        for known in (self._known, self._finals):
            known.clear() if problem is None else known.pop(problem, None)

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of the back end, valid or not, as they were when they were first needed."""
        return self.backend.rows(self.operation)

    def pack(self, problem: Problem) -> None:
        """Called when a search of the problem has ended: its rows may be stored in less space."""
        self.backend.pack(self.operation, problems.text(problem, self.threads), self.device)

    def rows_of(self, problem: Problem) -> list[Row]:
        """The rows of a problem and those of EVERY problem, valid or not, on all devices."""
        text = problems.text(problem, self.threads)
        return [row for row in self.backend.rows(self.operation, text) if row.problem in (text, EVERY)]

    def _read(self, problem: Problem | None) -> None:
        """Take what the back end holds of a problem; of all problems if it is None, or if they are read at once."""
        wanted = None if self.at_once else problem
        if {wanted, None} & self._read_of:
            return
        if wanted is None:
            self._forget(None)  # what was read of single problems is among all the rows
        self._read_of.add(wanted)
        text = None if wanted is None else problems.text(wanted, self.threads)
        rows = self.rows if text is None else self.backend.rows(self.operation, text)
        for each in rows:
            if each.device != self.device.key:
                continue
            if each.failure == FORGOTTEN:
                named = problems.of_text(self.operation, each.dtype, each.problem)
                if named is not None or each.problem == EVERY:
                    self._forget(named)
            elif self._has_valid_source(each):
                found = problems.of_text(self.operation, each.dtype, each.problem)
                if found is not None and each.problem == problems.text(found, self.threads):
                    self._take(found, choice_of(each), outcome_of(each), each.turns)

    def _has_valid_source(self, row: Row) -> bool:
        return self.sources.valid(row.implementation, row.source)

    def _take(self, problem: Problem, choice: Choice, outcome: Outcome, turns: str | None) -> None:
        before = self._known.get(problem, {}).get(choice)
        tries = 0 if outcome.kind not in TEMPORARY else 1 + (before.tries if before else 0)
        known = Known(outcome, timing(outcome.samples).median if outcome.samples else None, turns, tries)
        self._known.setdefault(problem, {})[choice] = known
        if turns is not None:
            self._finals.setdefault(problem, {}).setdefault(turns, {})[choice] = known


def row(
    operation: str, problem: str, dtype: str, choice: Choice, source: str, outcome: Outcome, turns: str | None = None
) -> Row:
    """The row of an outcome; problem: as text."""
    found = timing(outcome.samples) if outcome.samples else None
    return Row(
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


def choice_of(row: Row) -> Choice:
    """The choice that was measured."""
    return Choice.of(row.implementation, json.loads(row.configuration))


def outcome_of(row: Row) -> Outcome:
    """The outcome of the measurement."""
    if row.milliseconds is not None:
        samples = tuple(row.samples) or (row.milliseconds,)
        return Outcome(Kind.TIMED, samples, row.message or "", resources=row.resources)
    return Outcome(of_stored(row.failure, row.message or ""), message=row.message or "")


def valid(known: Mapping[Choice, Known]) -> dict[Choice, float]:
    """Milliseconds of the choices that were timed."""
    return {choice: each.milliseconds for choice, each in known.items() if each.milliseconds is not None}


def fastest(times: Mapping[Choice, float], count: int) -> Sequence[Choice]:
    """At most `count` choices, the fastest first."""
    return sorted(times, key=lambda choice: (times[choice], str(choice)))[:count]


def cache_of(backend: Backend, operation: Operation, device: Device, threads: int) -> Cache:
    """The results of one of our operations on a device."""
    return Cache(backend, operation.name, device, Sources.of_operation(operation), threads)
