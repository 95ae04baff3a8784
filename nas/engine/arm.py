"""An arm of a study: a strategy and a scheduler that learn from the trials of this arm alone.

`main` is the search itself. Other arms are controls, such as random search with a share of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nas.engine.allowance import Allowance
from nas.engine.audit import Audit
from nas.engine.scores import Later, Scores
from nas.engine.source import Exhausted, Source, broken, chosen_point, point_of
from nas.schedulers.contract import WAIT, Promotion, Scheduler
from nas.store import Trial, Unit, UnitKind
from nas.strategies.contract import Proposal, Result, Started, Strategy
from nas.work import FailureKind
from searchspace.model.architecture import Architecture
from searchspace.space.point import Point
from searchspace.space.space import Space

ROUNDING = 1e-9  # of a share times a number of trials
NO_VALUE = FailureKind.NO_VALUE.value


class Arm:
    """name: as it is stored with its trials. share: the fraction of the study's budget that it gets. parts: builds its
    strategy and its scheduler, without any knowledge. only_baselines: the arm tries `baselines` and nothing else.
    space_version: the number of `space` within the study, None if it is not known. read: reads the trial with a number;
    needed for trials and units that were read without their architecture.

    Its state follows from the calls of `start` and `tell`, so it is rebuilt by repeating the study's log. All numbers
    of trials are those of the study. The scheduler alone counts the trials of this arm from 0, so each arm gets the
    same brackets.
    """

    def __init__(
        self,
        name: str,
        share: float,
        space: Space,
        parts: Callable[[], tuple[Strategy, Scheduler]],
        scores: Scores,
        allowance: Allowance,
        baselines: Sequence[Architecture] = (),
        *,
        only_baselines: bool = False,
        space_version: int | None = None,
        read: Callable[[int], Trial] | None = None,
    ) -> None:
        self.name, self.share, self.space = name, share, space
        self._space_version, self._read = space_version, read
        self.scores, self.allowance = scores, allowance
        self._parts, self._baselines, self._only_baselines = parts, baselines, only_baselines
        judged = [(each.name, "cost" if each.settled else each.stage) for each in scores.objectives]  # no latency
        self.audit = Audit.of(judged)
        self.later = Later(scores.objectives)
        self._keeps = self.audit is not None or bool(self.later.objectives)
        self._calls: list[Callable[[], None]] = []  # everything that was told, if it may have to be told again
        self._outdated = False  # whether it has to be, because values changed
        self._equip()
        self.told = 0  # results that the strategy knows
        self.trials = 0  # started trials
        self.known: set[str] = set()  # hashes of the architectures that were started
        self.exhausted: Exhausted | None = None  # why nothing new is left to propose, if that is so
        self._points: dict[int, Point] = {}  # of started trials without a result
        self._ids: dict[int, int] = {}  # number -> id of the trials that may be promoted
        self._numbers: list[int] = []  # of the trials, in the order in which they were started
        self._places: dict[int, int] = {}  # number -> place in that order, which is the scheduler's number
        self._reached: dict[int, tuple[int, int, bool]] = {}  # number -> rung, steps, whether it may be promoted now
        self._open: set[int] = set()  # trials with a unit that has not ended, as far as this process knows

    def _equip(self) -> None:
        self._strategy, self._scheduler = self._parts()
        self._source = Source(self.space, self._strategy, self._baselines, only_baselines=self._only_baselines)

    def _call(self, call: Callable[[], None]) -> None:
        """Tell the strategy and the scheduler something, and remember it for those that replace them."""
        if self._keeps:
            self._calls.append(call)
        if not self._outdated:
            call()

    def _update(self) -> None:
        """Replace the strategy and the scheduler if values changed: they learn everything again, with the new ones."""
        if self._outdated:
            self._outdated = False
            self._equip()
            for call in self._calls:
                call()

    @property
    def strategy(self) -> Strategy:
        """The strategy, which knows all results that the arm has."""
        self._update()
        return self._strategy

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, which knows all results that the arm has."""
        self._update()
        return self._scheduler

    @property
    def source(self) -> Source:
        """Where the proposals of this arm come from."""
        self._update()
        return self._source

    def propose(self, number: int, count: int) -> list[Proposal]:
        """One to `count` proposals for the trials from `number` on. Raises Exhausted if nothing is left."""
        return self.source.propose(number, count, self.known)

    def start(self, trial: Trial) -> None:
        """A trial of this arm was started: it is pending until it has a result."""
        self.begin(trial.number, trial.architecture_hash, self._recorded(trial))

    def begin(self, number: int, hash: str, point: Point | None) -> None:
        """Like `start`, if the point is at hand."""
        self.known.add(hash)
        self.trials += 1
        if point is not None:
            self._points[number] = point
        self._open.add(number)
        place = self._enter(number)

        def call() -> None:
            self._strategy.start(Started(number, point))
            self._scheduler.started(place, 0, self._scheduler.start(place))

        self._call(call)

    def tell(self, unit: Unit) -> None:
        """A unit of this arm ended. A probe that succeeded says nothing yet: its trial is still to be trained.

        A value that a machine found later changes an earlier result of the arm.
        """
        if unit.later:
            self.later.tell(unit)
            self._outdated = True
            self.told += 1
            return
        self.allowance.add(unit)
        if not counts(unit):
            return
        values = self.scores.minimised(unit.values)
        self._ids[unit.number] = unit.trial_id
        self.known.add(unit.architecture_hash)
        point, place = self._point(unit), self._enter(unit.number)
        number, rung, steps, failure = unit.number, unit.rung, unit.steps, unit.error_kind
        self._open.discard(number)
        self._reached[number] = rung, steps, values is not None

        def call() -> None:
            seen = self._seen(number, values)
            why = failure or (NO_VALUE if seen is None else None)
            self._strategy.tell(Result(number, rung, steps, point, seen, why))
            self._scheduler.started(place, rung, steps)
            self._scheduler.tell(place, rung, seen, steps)

        self._call(call)
        self.told += 1
        if self.audit is not None and self.audit.tell(number, steps, values):
            self._outdated = True

    def _seen(self, number: int, values: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """The values of a trial as the strategy and the scheduler see them now."""
        filled = self.later.filled(number, values) if self.later.objectives else values
        return filled if self.audit is None else self.audit.masked(filled)

    def promotion(self) -> tuple[int, Promotion] | None:
        """(id of the trial, promotion) of the trial that should continue now, which then counts as promoted.

        Raises the error of `broken` if the scheduler names a trial that cannot continue.
        """
        if self.allowance.spent:
            return None
        answer = self.scheduler.promotion()
        if answer is None or answer is WAIT:
            return None
        if not isinstance(answer, Promotion) or not self._is_next(answer):
            expected = "WAIT, None, or the next rung of a trial that has values, with more steps than its last one"
            raise broken(self.scheduler, "promotion()", answer, expected)
        place, rung, steps = int(answer.number), int(answer.rung), int(answer.steps)
        self._call(lambda: self._scheduler.started(place, rung, steps))
        number = self._numbers[place]
        self._reached[number] = rung, steps, False
        return self._ids[number], Promotion(number, rung, steps)

    def _is_next(self, promotion: Promotion) -> bool:
        """Whether the trial that is promoted waits at the rung below, with fewer steps."""
        if not 0 <= promotion.number < len(self._numbers):
            return False
        rung, steps, waits = self._reached.get(self._numbers[promotion.number], (0, 0, False))
        return waits and promotion.rung == rung + 1 and promotion.steps > steps

    def continues(self, number: int) -> None:
        """A unit of a promoted trial was stored."""
        self._open.add(number)

    @property
    def waiting(self) -> bool:
        """Whether the scheduler waits for a running unit before it accepts a new trial."""
        return bool(self._open) and self.scheduler.promotion() is WAIT

    def next_steps(self) -> int:
        """The steps of the first training unit of the next trial of this arm.

        Raises the error of `broken` if the scheduler gives no steps, or more than the horizon.
        """
        place = len(self._numbers)
        steps, horizon = self.scheduler.start(place), self.scheduler.horizon(place)
        if not 1 <= steps <= horizon:
            expected = f"at least 1, and at most the horizon, {horizon!r}"
            raise broken(self.scheduler, f"start({place})", steps, expected)
        return int(steps)

    def first_steps(self, number: int) -> int:
        """The steps of the first training unit of a trial that was started."""
        return int(self.scheduler.start(self._places[number]))

    def horizon(self, number: int) -> int:
        """The steps at which the learning rate of a trial that was started has come down."""
        return int(self.scheduler.horizon(self._places[number]))

    def is_last(self, unit: Unit) -> bool:
        """Whether a trial that was started ends with this unit."""
        return self.scheduler.is_last(self._places[unit.number], unit.rung, unit.steps)

    def _enter(self, number: int) -> int:
        """The place of a trial in the arm. Only the log may enter trials: their order is the scheduler's numbering."""
        if number not in self._places:
            self._places[number] = len(self._numbers)
            self._numbers.append(number)
        return self._places[number]

    def architecture(self, number: int) -> Architecture | None:
        """The architecture of a started trial that has no result yet, if it is in the space."""
        point = self._points.get(number)
        return point.architecture if point else None

    def _point(self, unit: Unit) -> Point | None:
        known = self._points.pop(unit.number, None)
        return known or self._recorded(unit)

    def _recorded(self, of: Trial | Unit) -> Point | None:
        """The point of a trial, or of that of a unit; None if it is outside the space."""
        if of.choices is None and self._read is not None:
            of = self._read(of.number)
        if of.choices and of.space_version == self._space_version:
            return chosen_point(self.space, of.choices, of.architecture_hash)
        return point_of(self.space, of.choices, lambda: self._text(of), of.architecture_hash)

    def _text(self, of: Trial | Unit) -> str:
        return of.architecture if of.architecture or self._read is None else self._read(of.number).architecture


def counts(unit: Unit) -> bool:
    """Whether a unit that ended is a result: the end of a rung, a failure, or a value that was found later."""
    return unit.kind is UnitKind.TRAIN or unit.values is None or unit.later


def next_arm(arms: Sequence[Arm], trials: int | None, most: int = 1) -> tuple[Arm, int] | None:
    """The arm of the next trial, and how many trials in a row belong to it, at most `most`.

    trials: the budget of the study; None if something else ends it. Only arms count that have something left to spend
    and to propose, and whose scheduler does not wait. It is the one of these that is furthest below its share of the
    trials. None if there is no such arm. If no scheduler waits, the answer follows from the study's log, so it is the
    same in every process and after a restart.
    """
    started = [arm.trials for arm in arms]
    able = [arm.exhausted is None and not arm.allowance.spent and not arm.waiting for arm in arms]
    first = _next_index(arms, able, started, trials)
    if first is None:
        return None
    count = 0
    while count < most and _next_index(arms, able, started, trials) == first:
        started[first] += 1
        count += 1
    return arms[first], count


def _next_index(arms: Sequence[Arm], able: Sequence[bool], started: Sequence[int], trials: int | None) -> int | None:
    total, limit = sum(started), math.inf if trials is None else trials
    open_to = [
        index
        for index, arm in enumerate(arms)
        if able[index] and (trials is None or started[index] < math.ceil(arm.share * trials - ROUNDING))
    ]
    if total >= limit or not open_to:
        return None
    return max(open_to, key=lambda index: arms[index].share * (total + 1) - started[index])
