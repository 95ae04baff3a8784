"""The loop of a search: units out to the runner, outcomes into the store, until the budget is spent.

The store is the only truth: the loop keeps nothing that it could not read there again. So the same command, run again
after anything has been killed, goes on where the store stands, and two of them share the work.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

from nas import assembly, leases
from nas.config import SearchConfig
from nas.errors import NasError
from nas.finals import Finals, Report
from nas.proposer import Proposer
from nas.reporting import Reporter
from nas.runners.contract import Runner
from nas.store import Store, Study, Unit
from nas.work import Failure, FailureKind, Outcome

POLL_SECONDS = 0.5
RECOVER_SECONDS = 2.0  # how often units that others left behind are looked for
INTERRUPT_SECONDS = 8.0


class Interrupted(NasError):
    """The search was asked to stop; everything recorded is in the store."""

    exit_code = 130


@dataclass
class Search:
    """One process that works on a study. `run` returns when the study's budget is spent."""

    config: SearchConfig
    store: Store
    study: Study
    runner: Runner
    reporter: Reporter
    lease_seconds: float = leases.SECONDS

    def __post_init__(self) -> None:
        self.owner = leases.owner_name()
        self.objectives = assembly.objectives(self.config)
        self.proposer = Proposer(
            self.store,
            self.study,
            space := assembly.space(self.config),
            assembly.strategy(self.config, space),
            assembly.scheduler(self.config),
            self.objectives,
            assembly.baselines(self.config),
        )
        self._running: dict[tuple[int, int], Unit] = {}
        self._recovered = -math.inf
        self._stopping = False

    def run(self) -> Report | None:
        """Search, then re-train the finalists. Raises Interrupted after Ctrl-C."""
        self._keeper = leases.Keeper(self.store, self.owner, self.lease_seconds)
        try:
            with self._signals():
                self._drive(self._search_unit)
                self.store.stop_trials(self.study.id)
                return self._finals()
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted(
                f"Stopped. Every recorded trial is kept; run the same command again to go on with {self.study.name!r}."
            ) from None
        finally:
            self._keeper.close()
            self.runner.close()

    def _finals(self) -> Report | None:
        finals = Finals(self.config, self.store, self.study, self.objectives)
        if not self.config.finals.top:
            return None
        self._drive(lambda: self._left_behind() or finals.next_unit(self.owner, self.lease_seconds))
        return finals.report()

    def _drive(self, next_unit: Callable[[], Unit | None]) -> None:
        """Keep the runner busy with what `next_unit` gives until there is nothing left, here or in other processes."""
        while True:
            while len(self._running) < self.runner.capacity and (unit := next_unit()) is not None:
                self._start(unit)
            self._check_stopping()
            if self._running:
                for outcome in self.runner.wait(POLL_SECONDS):
                    self._record(outcome)
            elif self.store.open_units(self.study.id):
                time.sleep(POLL_SECONDS)
            else:
                return
            self.reporter.tick(self.runner.progress())

    def _search_unit(self) -> Unit | None:
        """What to run next: a unit that was left behind, a promotion, or a new trial while the budget lasts."""
        unit = self._left_behind()
        if unit is not None or self._time_is_up():
            return unit
        return self.proposer.promotion(self.owner, self.lease_seconds) or self.proposer.new_trial(
            self.owner, self.lease_seconds, self.config.budget.trials
        )

    def _left_behind(self) -> Unit | None:
        """A unit that is queued, or whose process died: looked for at the start, then now and then, and when idle."""
        now = time.monotonic()
        if self._running and now - self._recovered < RECOVER_SECONDS:
            return None
        gone = leases.dead(holder.name for holder in self.store.owners(self.study.id))
        units = self.store.lease(self.study.id, self.owner, 1, self.lease_seconds, dead_owners=gone)
        if not units:
            self._recovered = now
            return None
        return units[0]

    def _time_is_up(self) -> bool:
        minutes = self.config.budget.minutes
        if minutes is None:
            return False
        return self.store.trained_seconds(self.study.id, "search") >= minutes * 60 * self.runner.workers

    def _start(self, unit: Unit) -> None:
        self._keeper.hold(unit.id)
        self._running[unit.number, unit.rung] = unit
        horizon = self.proposer.scheduler.rungs[-1] if unit.purpose == "search" else unit.steps
        self.runner.submit(assembly.work(self.config, unit, horizon))

    def _record(self, outcome: Outcome) -> None:
        unit = self._running.pop((outcome.trial, outcome.rung))
        values, failure = self._score(unit, outcome)
        if failure is None:
            self._finish(unit, outcome, values)
        else:
            self.store.fail(
                unit.id,
                self.owner,
                unit.attempt,
                failure.kind.value,
                failure.message,
                seconds=outcome.seconds,
                requeue=failure.kind.retried,
                max_attempts=self.config.limits.attempts,
            )
            self._recovered = -math.inf  # it may be queued again
        self._keeper.drop(unit.id)
        self.reporter.ended(unit, values, failure, outcome)

    def _finish(self, unit: Unit, outcome: Outcome, values: dict[str, float]) -> None:
        search = unit.purpose == "search"
        self.store.finish(
            unit.id,
            self.owner,
            unit.attempt,
            objectives=values,
            metrics=dict(outcome.metrics),
            curve=outcome.curve,
            checkpoint=(kept.uri, kept.sha256) if (kept := outcome.checkpoint) else None,
            seconds=outcome.seconds,
            device=outcome.device,
            last=not search or unit.rung == len(self.proposer.scheduler.rungs) - 1,
        )

    def _score(self, unit: Unit, outcome: Outcome) -> tuple[dict[str, float], Failure | None]:
        """The objectives of an outcome; an objective that is not finite is a failure too."""
        if outcome.failure is not None:
            return {}, outcome.failure
        architecture = self.proposer.architecture(unit)
        values = {each.name: each.evaluate(architecture, outcome.metrics) for each in self.objectives}
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            return values, Failure(FailureKind.NOT_FINITE, f"{', '.join(bad)} came out as {values[bad[0]]}.")
        return values, None

    def _stop(self) -> None:
        """Save what runs and give its leases back, so that the next process begins with it."""
        for outcome in self.runner.interrupt(INTERRUPT_SECONDS):
            self._record(outcome)
        self.store.release([unit.id for unit in self._running.values()], self.owner)

    def _check_stopping(self) -> None:
        if self._stopping:
            raise KeyboardInterrupt

    @contextmanager
    def _signals(self):
        """The first Ctrl-C (or SIGTERM) asks for a stop, the second one kills."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(number, frame):
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            self._stopping = True
            self.runner.stop_soon()
            self.reporter.say("Stopping: saving what runs (Ctrl-C again to stop at once) ...")

        before = {each: signal.signal(each, asked) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
