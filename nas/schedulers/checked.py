"""A scheduler whose answers are checked before anything is done with them: a user's own one may break the contract."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from nas.errors import AnswerProblem
from nas.options import MOST
from nas.own.answers import Answers, called, whole
from nas.schedulers.contract import Level, Promotion, Scheduler, Wait

MOST_LEVELS = 100_000  # of a forecast, which may be endless
LEVELS = f"a tuple of Level(units, start, steps), at most {MOST_LEVELS:,}, with whole steps and at most {MOST:,} units"


class SchedulerProblem(AnswerProblem):
    """A scheduler gave an answer that breaks its contract, or raised an error."""


@dataclass(slots=True)
class _Newest:
    """The newest unit of a trial, as far as the scheduler was told."""

    rung: int
    steps: int
    ended: bool = False
    failed: bool = False


class CheckedScheduler:
    """Passes all calls on to `scheduler`, which is registered as `name`.

    Its methods raise SchedulerProblem for an answer that breaks the contract in `nas.schedulers.contract`, and for an
    error of `scheduler`. Whole numbers of NumPy become ints. A promotion counts as made once `started` was called for
    it, so a scheduler that names it again is stopped too.
    """

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name, self.scheduler = name, scheduler
        self._answers = Answers("scheduler", name, scheduler, SchedulerProblem)
        self._trials: dict[int, _Newest] = {}

    def start(self, number: int) -> int:
        answer = self._answers.ask("start", number)
        steps = whole(answer)
        if not 1 <= steps <= MOST:
            expected = f"a whole number of steps, at least 1 and at most {MOST:,}"
            self._answers.refuse(f"start({number})", answer, expected)
        self._check_horizon(number, steps)  # now, because no unit exists yet
        return steps

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        self._answers.ask("tell", number, rung, values, steps)
        self._trials[number] = _Newest(rung, steps, ended=True, failed=values is None)

    def started(self, number: int, rung: int, steps: int) -> None:
        self._answers.ask("started", number, rung, steps)
        self._trials[number] = _Newest(rung, steps)

    def promotion(self) -> Promotion | Wait | None:
        answer = self._answers.ask("promotion")
        if answer is None or isinstance(answer, Wait):
            return answer
        if not isinstance(answer, Promotion):
            self._answers.refuse("promotion()", answer, "a Promotion, WAIT or None")
        found = self._answers.attempt(lambda: "promotion()", _plain, answer)
        if expected := self._expected(found):
            self._answers.refuse("promotion()", answer, expected)
        self._check_horizon(found.number, found.steps)
        return found

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        answer = self._answers.ask("is_last", number, rung, steps)
        try:
            return bool(answer)
        except KeyboardInterrupt:
            raise
        except BaseException:  # an array of several values has no truth
            self._answers.refuse(f"is_last({number}, {rung}, {steps})", answer, "True or False")

    def horizon(self, number: int) -> int:
        newest = self._trials.get(number)
        return self._check_horizon(number, 1 if newest is None else newest.steps)

    def forecast(self, trials: int) -> tuple[Level, ...]:
        answer = self._answers.ask("forecast", trials, most=MOST_LEVELS)
        call = called("forecast", trials)
        if not isinstance(answer, tuple) or len(answer) > MOST_LEVELS:
            self._answers.refuse(call, answer, LEVELS)
        levels = [self._answers.attempt(lambda: call, _expected_units, each) for each in answer]
        if None in levels:
            self._answers.refuse(call, answer, LEVELS)
        return tuple(level for level in levels if level is not None)

    def _expected(self, answer: Promotion) -> str:
        """What a promotion must be and this one is not; '' if it may be made."""
        number = answer.number
        newest = self._trials.get(number)
        if newest is None:
            known = f"0 to {len(self._trials) - 1}" if self._trials else "none so far"
            return f"the number (an int) of a trial that was started, counted within the arm ({known})"
        if not newest.ended:
            return (
                f"a trial whose last unit has ended, but rung {newest.rung} of trial {number} was started and has no "
                "result; after `started`, a scheduler must not name this promotion again"
            )
        if newest.failed:
            return f"a trial that has values, but trial {number} has failed (`tell` with values None)"
        if answer.rung != newest.rung + 1:
            return f"rung={newest.rung + 1}, the next one of trial {number}"
        if not newest.steps < answer.steps <= MOST:
            return f"steps from {newest.steps + 1} to {MOST:,}, because trial {number} was trained for {newest.steps}"
        if self.is_last(number, newest.rung, newest.steps):
            return f"a trial that has not ended, but is_last({number}, {newest.rung}, {newest.steps}) says that it has"
        return ""

    def _check_horizon(self, number: int, steps: int) -> int:
        """The horizon of a trial that trains to `steps`."""
        answer = self._answers.ask("horizon", number)
        horizon = whole(answer)
        if not steps <= horizon <= MOST:
            expected = f"a whole number, at least {steps}: the trial trains so long; at most {MOST:,}"
            self._answers.refuse(f"horizon({number})", answer, expected)
        return horizon


def _plain(answer: Promotion) -> Promotion:
    """`answer` with ints in place of whole numbers of NumPy."""
    return Promotion(whole(answer.number), whole(answer.rung), whole(answer.steps))


def _expected_units(level: object) -> Level | None:
    """`level` with a whole number of units; None if it is no level that can be trained."""
    if not (hasattr(level, "units") and hasattr(level, "start") and hasattr(level, "steps")):
        return None
    units: Any = level.units if isinstance(level.units, Real) else -1
    start, steps = whole(level.start), whole(level.steps)
    if not 0 <= units <= MOST or not 0 <= start <= steps <= MOST:
        return None
    return Level(round(units), start, steps)
