"""A scheduler whose answers are checked before anything is done with them: a user's own one may break the contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NoReturn

from nas.errors import NasError, UsageError
from nas.options import MOST
from nas.registry import shortened, traceback_of
from nas.schedulers.contract import Level, Promotion, Scheduler, Wait


class SchedulerProblem(UsageError):
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
        self._trials: dict[int, _Newest] = {}

    def start(self, number: int) -> int:
        answer = self._ask("start", number)
        steps = _whole(answer)
        if not 1 <= steps <= MOST:
            self._refuse(f"start({number})", answer, f"a whole number of steps, at least 1 and at most {MOST:,}")
        self._check_horizon(number, steps)  # now, because no unit exists yet
        return steps

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        self._ask("tell", number, rung, values, steps)
        self._trials[number] = _Newest(rung, steps, ended=True, failed=values is None)

    def started(self, number: int, rung: int, steps: int) -> None:
        self._ask("started", number, rung, steps)
        self._trials[number] = _Newest(rung, steps)

    def promotion(self) -> Promotion | Wait | None:
        answer = self._ask("promotion")
        if answer is None or isinstance(answer, Wait):
            return answer
        if not isinstance(answer, Promotion):
            self._refuse("promotion()", answer, "a Promotion, WAIT or None")
        found = Promotion(_whole(answer.number), _whole(answer.rung), _whole(answer.steps))
        if expected := self._expected(found):
            self._refuse("promotion()", answer, expected)
        self._check_horizon(found.number, found.steps)
        return found

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        answer = self._ask("is_last", number, rung, steps)
        try:
            return bool(answer)
        except Exception:  # an array of several values has no truth
            self._refuse(f"is_last({number}, {rung}, {steps})", answer, "True or False")

    def horizon(self, number: int) -> int:
        newest = self._trials.get(number)
        return self._check_horizon(number, 1 if newest is None else newest.steps)

    def forecast(self, trials: int) -> tuple[Level, ...]:
        answer = self._ask("forecast", trials)
        try:
            found = tuple(map(_expected_units, answer))
        except (AttributeError, TypeError, ValueError, OverflowError):
            expected = f"a tuple of Level(units, start, steps) with whole steps and at most {MOST:,} units"
            self._refuse(f"forecast({trials})", answer, expected)
        return found

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
        answer = self._ask("horizon", number)
        horizon = _whole(answer)
        if not steps <= horizon <= MOST:
            expected = f"a whole number, at least {steps}: the trial trains so long; at most {MOST:,}"
            self._refuse(f"horizon({number})", answer, expected)
        return horizon

    def _ask(self, method: str, *arguments: object) -> Any:
        try:
            answer = getattr(self.scheduler, method)(*arguments)
            return tuple(answer) if isinstance(answer, Iterator) else answer  # a generator raises its errors here
        except NasError:
            raise
        except (Exception, SystemExit, GeneratorExit) as error:
            called = f"{method}({', '.join(map(repr, arguments))})"
            said = traceback_of(error)
            raise SchedulerProblem(f"The scheduler {self.name!r} raised an error in {called}:\n{said}") from error

    def _refuse(self, call: str, answer: object, expected: str) -> NoReturn:
        raise SchedulerProblem(
            f"The scheduler {self.name!r} broke its contract: {call} answered {_shown(answer)}. Expected: {expected}."
        )


def _shown(answer: object) -> str:
    try:
        return shortened(repr(answer))
    except Exception as error:  # of a class of the user's own; Python does not write whole numbers of 4,301 digits
        return f"a {type(answer).__name__} that cannot be written ({error})"


def _whole(answer: object) -> int:
    """`answer` as an int, also if it is a whole number of NumPy; -1, which breaks every contract, if it is another."""
    return int(answer) if isinstance(answer, Integral) and not isinstance(answer, bool) else -1


def _expected_units(level: Level) -> Level:
    """`level` with a whole number of units.

    Raises AttributeError, TypeError, ValueError or OverflowError if it is no level that can be trained.
    """
    found = Level(round(level.units), _whole(level.start), _whole(level.steps))
    if not 0 <= found.units <= MOST or not 0 <= found.start <= found.steps <= MOST:
        raise ValueError(level)
    return found
