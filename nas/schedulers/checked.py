"""A scheduler whose answers are checked before anything is done with them: a user's own one may break the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from nas.errors import UsageError
from nas.schedulers.contract import Level, Promotion, Scheduler, Wait


class SchedulerProblem(UsageError):
    """A scheduler gave an answer that breaks its contract."""


@dataclass(slots=True)
class _Newest:
    """The newest unit of a trial, as far as the scheduler was told."""

    rung: int
    steps: int
    ended: bool = False
    failed: bool = False


class CheckedScheduler:
    """Passes all calls on to `scheduler`, which is registered as `name`.

    Raises SchedulerProblem for an answer that breaks the contract in `nas.schedulers.contract`. A promotion counts as
    made once `started` was called for it, so a scheduler that names it again is stopped too.
    """

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name, self.scheduler = name, scheduler
        self._trials: dict[int, _Newest] = {}

    def start(self, number: int) -> int:
        steps = self.scheduler.start(number)
        if not _is_whole(steps):
            self._refuse(f"start({number})", steps, "a whole number of steps, at least 1")
        self._check_horizon(number, steps)  # now, because no unit exists yet
        return steps

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        self.scheduler.tell(number, rung, values, steps)
        self._trials[number] = _Newest(rung, steps, ended=True, failed=values is None)

    def started(self, number: int, rung: int, steps: int) -> None:
        self.scheduler.started(number, rung, steps)
        self._trials[number] = _Newest(rung, steps)

    def promotion(self) -> Promotion | Wait | None:
        answer = self.scheduler.promotion()
        if answer is None or isinstance(answer, Wait):
            return answer
        if not isinstance(answer, Promotion):
            self._refuse("promotion()", answer, "a Promotion, WAIT or None")
        if expected := self._expected(answer):
            self._refuse("promotion()", answer, expected)
        self._check_horizon(answer.number, answer.steps)
        return answer

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        return bool(self.scheduler.is_last(number, rung, steps))

    def horizon(self, number: int) -> int:
        newest = self._trials.get(number)
        return self._check_horizon(number, 1 if newest is None else newest.steps)

    def forecast(self, trials: int) -> tuple[Level, ...]:
        return self.scheduler.forecast(trials)

    def _expected(self, answer: Promotion) -> str:
        """What a promotion must be and this one is not; '' if it may be made."""
        number = answer.number
        newest = self._trials.get(number) if isinstance(number, int) else None
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
        if not _is_whole(answer.steps) or answer.steps <= newest.steps:
            return f"steps above {newest.steps}, because trial {number} was trained for {newest.steps}"
        if self.scheduler.is_last(number, newest.rung, newest.steps):
            return f"a trial that has not ended, but is_last({number}, {newest.rung}, {newest.steps}) says that it has"
        return ""

    def _check_horizon(self, number: int, steps: int) -> int:
        """The horizon of a trial that trains to `steps`."""
        horizon: int = self.scheduler.horizon(number)
        if not _is_whole(horizon) or horizon < steps:
            self._refuse(f"horizon({number})", horizon, f"a whole number, at least {steps}: the trial trains so long")
        return horizon

    def _refuse(self, call: str, answer: object, expected: str) -> NoReturn:
        raise SchedulerProblem(
            f"The scheduler {self.name!r} broke its contract: {call} answered {answer!r}. Expected: {expected}."
        )


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1
