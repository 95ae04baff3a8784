"""The loop of a search: units out to the runner, outcomes into the store, until the budget is spent.

The store is the only truth: the loop keeps nothing that it could not read there again. So the same command, run again
after anything has been killed, goes on where the store stands, and two of them share the work.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine import judgement, leases
from nas.engine.finals import TRAINED, Finals, Report
from nas.engine.proposer import Proposer
from nas.errors import NasError, StoreError
from nas.report.console import Reporter
from nas.runners.contract import Runner
from nas.store import Ending, Store, Study, TrialState, Unit
from nas.work import Failure, FailureKind, Outcome

POLL_SECONDS = 0.5
RECOVER_SECONDS = 2.0  # how often units that others left behind are looked for
INTERRUPT_SECONDS = 6.0  # for running units to save themselves


class Interrupted(NasError):
    """The search was asked to stop; everything recorded is in the store."""

    exit_code = 130


class NothingFound(NasError):
    """No trial of the search gave a result."""


@dataclass
class Search:
    """One process that works on a study. `run` returns when the study's budget is spent."""

    config: SearchConfig
    store: Store
    study: Study
    runner: Runner
    reporter: Reporter
    lease_seconds: float = leases.SECONDS
    _keeper: leases.Keeper = field(init=False)

    def __post_init__(self) -> None:
        self.owner = leases.owner_name()
        self.objectives = factory.objectives(self.config)
        self.proposer = Proposer(
            self.store,
            self.study,
            space := factory.space(self.config),
            factory.strategy(self.config, space),
            factory.scheduler(self.config),
            self.objectives,
            factory.baselines(self.config),
            self.reporter.say,
        )
        self._running: dict[tuple[int, int], Unit] = {}
        self._recovered = -math.inf
        self._stopping = False

    def run(self) -> Report | None:
        """Search, then re-train the finalists. Raises Interrupted after Ctrl-C, NothingFound when all trials failed."""
        self._keeper = leases.Keeper(self.store, self.owner, self.lease_seconds)
        with self._signals():
            try:
                self._drive(self._search_unit)
                self._end_search()
                return self._finals()
            except KeyboardInterrupt:
                self._interrupt()
                raise Interrupted(
                    f"Stopped. Every recorded trial is kept; run the same command again to go on with "
                    f"{self.study.name!r}."
                ) from None
            finally:
                self._give_back()
                self._keeper.close()
                self.runner.close()

    def _end_search(self) -> None:
        if self.proposer.exhausted:
            self.reporter.say(str(self.proposer.exhausted))
        self.store.stop_trials(self.study.id)
        if not self.store.best(self.study.id, limit=1, states=TRAINED, purposes=("search",)):
            raise NothingFound(_why_nothing(self.store, self.study))

    def _finals(self) -> Report | None:
        if not self.config.finals.top:
            return None
        finals = Finals(self.config, self.store, self.study, self.objectives)
        self._drive(lambda: self._left_behind() or finals.next_unit(self.owner, self.lease_seconds))
        if report := finals.report():
            judgement.keep(self.store, self.study, self.config, self.objectives[0], report)
        return report

    def _drive(self, next_unit: Callable[[], Unit | None]) -> None:
        """Keep the runner busy with what `next_unit` gives until there is nothing left, here or in other processes."""
        while True:
            while len(self._running) < self.runner.capacity and (unit := next_unit()) is not None:
                self._start(unit)
            if self._stopping:
                raise KeyboardInterrupt
            if self._running:
                for outcome in self.runner.wait(POLL_SECONDS):
                    self._record(outcome)
            elif self.store.open_units(self.study.id):  # in another process
                time.sleep(POLL_SECONDS)
            elif (unit := next_unit()) is not None:  # what another process recorded a moment ago may lead on
                self._start(unit)
            else:
                return
            self.reporter.tick(self.runner.progress())

    def _search_unit(self) -> Unit | None:
        """What to run next: a unit that was left behind, a promotion, or a new trial while the budget lasts."""
        if unit := self._left_behind():
            return unit
        self.proposer.absorb()
        if self._time_is_up():
            return None
        return self.proposer.promotion(self.owner, self.lease_seconds) or self.proposer.new_trial(
            self.owner, self.lease_seconds, self.config.budget.trials
        )

    def _left_behind(self) -> Unit | None:
        """A unit that is queued, or whose process died: looked for at the start, and now and then."""
        now = time.monotonic()
        if now - self._recovered < RECOVER_SECONDS:
            return None
        gone = leases.dead(holder.name for holder in self.store.owners(self.study.id))
        units = self.store.lease(self.study.id, self.owner, 1, self.lease_seconds, dead_owners=gone)
        if units:
            return units[0]
        self._recovered = now
        return None

    def _time_is_up(self) -> bool:
        minutes = self.config.budget.minutes
        return minutes is not None and self.proposer.trained_seconds >= minutes * 60 * self.runner.workers

    def _start(self, unit: Unit) -> None:
        self._keeper.hold(unit.id)
        self._running[unit.number, unit.rung] = unit
        horizon = self.proposer.scheduler.horizon(unit.number) if unit.purpose == "search" else unit.steps
        self.runner.submit(factory.work(self.config, unit, horizon))

    def _record(self, outcome: Outcome) -> None:
        unit = self._running.pop((outcome.trial, outcome.rung), None)
        if unit is None:
            return  # its lease was lost and won back while it ran, so it ran twice here: the first outcome counted
        values, failure = self._score(unit, outcome)
        recorded = self._fail(unit, outcome, failure) if failure else self._finish(unit, outcome, values)
        self._keeper.drop(unit.id)
        if recorded:
            self.reporter.ended(unit, values, failure, outcome)
        else:
            self.reporter.say(f"trial {unit.number} rung {unit.rung}: another process has taken it over")

    def _finish(self, unit: Unit, outcome: Outcome, values: dict[str, float]) -> bool:
        """False when the lease was lost, so that nothing was recorded."""
        last = unit.purpose != "search" or self.proposer.scheduler.is_last(unit.number, unit.rung, unit.steps)
        sequence = self.store.finish(
            unit.id,
            self.owner,
            unit.attempt,
            objectives=values,
            metrics=dict(outcome.metrics),
            curve=outcome.curve,
            checkpoint=(kept.uri, kept.sha256) if (kept := outcome.checkpoint) else None,
            seconds=outcome.seconds,
            device=outcome.device,
            last=last,
        )
        return sequence is not None

    def _fail(self, unit: Unit, outcome: Outcome, failure: Failure) -> bool:
        ending = self.store.fail(
            unit.id,
            self.owner,
            unit.attempt,
            failure.kind.value,
            failure.message,
            seconds=outcome.seconds,
            requeue=failure.kind.retried,
            max_attempts=self.config.limits.attempts,
        )
        if ending is Ending.REQUEUED:
            self._recovered = -math.inf  # it is there to be taken
        return ending is not Ending.LOST

    def _score(self, unit: Unit, outcome: Outcome) -> tuple[dict[str, float], Failure | None]:
        """The objectives of an outcome; an objective that is not finite is a failure too."""
        if outcome.failure is not None:
            return {}, outcome.failure
        architecture = self.proposer.architecture(unit)
        values = self.proposer.values(unit.number, architecture, outcome.metrics)
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            return values, Failure(FailureKind.NOT_FINITE, f"{', '.join(bad)} came out as {values[bad[0]]}.")
        return values, None

    def _interrupt(self) -> None:
        """Save what runs. A worker that was lost on the way is no failure: its unit goes back in the queue."""
        for outcome in self.runner.interrupt(INTERRUPT_SECONDS):
            if outcome.failure is None or not outcome.failure.kind.retried:
                self._record(outcome)

    def _give_back(self) -> None:
        """Put what is held back in the queue, so that the next process begins with it at once."""
        with contextlib.suppress(StoreError):  # what cannot be given back is free when its lease has run out
            self.store.release([unit.id for unit in self._running.values()], self.owner)
        self._running.clear()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C (or SIGTERM) asks for a stop, the second one kills."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

        def asked(number: int, frame: FrameType | None) -> None:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            self._stopping = True
            self.runner.stop_soon()
            # Past Python's streams, which may be in the middle of a line.
            os.write(2, b"\nStopping: saving what runs (Ctrl-C again to stop at once) ...\n")

        for each in before:
            signal.signal(each, asked)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler if handler is not None else signal.SIG_DFL)


def _why_nothing(store: Store, study: Study) -> str:
    """What the failures of a study without any result have in common."""
    failed = store.trials(study.id, states=(TrialState.FAILED,), purposes=("search",), limit=1000)
    if not failed:
        return f"The study {study.name!r} has no result: its budget was spent before a trial could finish."
    kinds = Counter(trial.error_kind for trial in failed)
    first = failed[0]
    return (
        f"The study {study.name!r} has no result: every trial failed "
        f"({', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}). Trial {first.number}, for one: "
        f"{first.error_kind}: {first.error_text}"
    )
