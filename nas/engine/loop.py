"""The loop of a search: submit units to the runner and record their outcomes until the budget is spent.

The loop keeps nothing that it could not read from the store again. So if anything is killed, the same command continues
from the state in the store, and two processes with the same command share the work.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from nas import location
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import leases, session
from nas.engine.ending import end
from nas.engine.leases import Heartbeat
from nas.engine.source import Exhausted
from nas.engine.units import Ended, Units
from nas.errors import NasError
from nas.finals import judgement
from nas.finals.entrants import TRAINED
from nas.finals.finals import Finals
from nas.finals.verdict import Verdict
from nas.numbers import name_of
from nas.objectives.contract import NoMetric
from nas.report.console import Reporter
from nas.report.overview import worker_text
from nas.runners.contract import Runner
from nas.store import Store, Study, TrialState, Unit
from nas.store.database.engine import file_of, parse
from nas.upkeep import cleaning
from nas.upkeep.disk import Disks
from nas.upkeep.places import checkpoint_folder
from nas.work import Checkpoint, FailureKind, Outcome, Progress

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
RECOVER_SECONDS = 2.0  # between two searches for units that other processes abandoned
INTERRUPT_SECONDS = 6.0  # for running units to save themselves


FROM_OUTSIDE = 10  # times `limits.attempts`: how often a search may end while a unit runs that cannot be the cause


class Interrupted(NasError):
    """The search was asked to stop. Everything recorded is in the store."""

    exit_code = 130


class NothingFound(NasError):
    """No trial of the search gave a result. summary: why, in one sentence. example: one of the failures."""

    def __init__(self, summary: str, example: str = "") -> None:
        super().__init__(f"{summary} {example}".rstrip())
        self.summary = summary


@dataclass
class Search:
    """The loop of one process that works on a study. `run` returns when the study's budget is spent."""

    config: SearchConfig
    store: Store
    study: Study
    runner: Runner
    reporter: Reporter
    lease_seconds: float = leases.SECONDS
    extends: Mapping[str, Any] | None = None  # the finals of the search file, if those of `config` extend them alone
    ended: bool = False  # as the study says; it ends for another reason only if another process queues a unit meanwhile

    def __post_init__(self) -> None:
        self.owner = leases.owner_name()
        self.parts = parts(self.config)
        self.objectives = self.parts.objectives
        self.proposer = session.proposer(self.parts, self.store, self.study, self.reporter.say)
        attempts = self.config.limits.attempts
        takeovers = attempts * (FROM_OUTSIDE if self.runner.isolates else 1)
        self.units = Units(
            self.store, self.study, self.proposer, attempts=attempts, takeovers=takeovers, crashed=self._crashed
        )
        self._running: dict[tuple[int, int, str], Unit] = {}
        self._recovered = -math.inf
        self._stopping = False
        self._waited_for: set[str] = set()  # owners of leases that were named
        self.disks = Disks(
            _folders(self.config.storage, self.config.checkpoints),
            log.warning if self.reporter.quiet else self.reporter.say,
        )

    def run(self) -> Verdict | None:
        """Search, then train the finalists again.

        Raises Interrupted after Ctrl-C, NothingFound if all trials failed.
        """
        heartbeat = Heartbeat(self.store, self.owner, self.lease_seconds, self._progress)
        self.units.heartbeat = heartbeat
        self.store.database.no_space = self._no_space
        with self._signals():
            try:
                if self.extends is None:
                    self._drive(self._search_units)
                    self._end_search()
                return self._finals()
            except KeyboardInterrupt:
                self._interrupt()
                raise Interrupted(
                    "Stopped. Every recorded trial is kept. Run the same command again to continue "
                    f"{self.study.name!r}."
                ) from None
            finally:
                try:
                    self._give_back()
                finally:
                    heartbeat.close()
                    self.runner.close()
                    self.store.database.no_space = None

    def _no_space(self) -> bool:
        """The disk of the study database is full: wait, unless Ctrl-C asked to stop."""
        if not self._stopping:
            self.disks.failed("the disk of the study database is full.", seconds=0)
        return not self._stopping

    def _progress(self) -> dict[int, Progress]:
        """How far the running units are, by id."""
        heard = self.runner.progress()
        running = list(self._running.values())
        return {unit.id: heard[unit.number, unit.rung] for unit in running if (unit.number, unit.rung) in heard}

    def _end_search(self) -> None:
        if self.proposer.exhausted:
            self.reporter.say(str(self.proposer.exhausted))
        end(self.proposer, self.config.budget, time_is_up=self._time_is_up(), again=self.ended)
        if not self.store.best(self.study.id, limit=1, states=TRAINED, purposes=("search",)):
            raise _nothing_found(self.store, self.study, self.proposer.exhausted)

    def _finals(self) -> Verdict | None:
        if not self.config.finals.top:
            return None
        finals = Finals(self.config, self.store, self.study, self.objectives)
        self._drive(lambda free: self._abandoned() or finals.next_units(self.owner, self.lease_seconds))
        return judgement.keep(finals, self.extends)

    def _drive(self, next_units: Callable[[int], list[Unit]]) -> None:
        """Keep the runner busy until there is nothing left to do, here or in other processes.

        next_units: up to this many units to run now; none if there is nothing.
        """
        while True:
            if self.units.heartbeat:
                self.units.heartbeat.check()
            self._fill(next_units)
            if self._stopping:
                raise KeyboardInterrupt
            if self._running:
                for outcome in self.runner.wait(POLL_SECONDS):
                    self._record(outcome)
            elif self.disks.short or self.store.open_units(self.study.id):  # they run in another process
                self._wait()
            elif not self._fill(next_units):  # what another process recorded a moment ago may need more units
                return
            self.reporter.tick(self.runner.progress())

    def _wait(self) -> None:
        """Wait a moment for units that others hold. Each owner is named once, with the time when its lease ends."""
        for owner in self.store.owners(self.study.id):
            if owner.name not in self._waited_for:
                self._waited_for.add(owner.name)
                self.reporter.say(f"Waiting for {worker_text(owner)}")
        time.sleep(POLL_SECONDS)

    def _fill(self, next_units: Callable[[int], list[Unit]]) -> bool:
        """Start units as long as the runner has capacity and there are any; whether one was started."""
        started = False
        while (free := self.runner.capacity - len(self._running)) > 0 and self.disks.allow():
            if not (units := next_units(free)):
                break
            for unit in units:
                self._start(unit)
            started = True
        return started

    def _search_units(self, free: int) -> list[Unit]:
        """What to run next: an abandoned unit, a promotion, or new trials while the budget lasts."""
        if units := self._abandoned():
            return units
        self.proposer.absorb()
        if self._time_is_up():
            return []
        if unit := self.proposer.promotion(self.owner, self.lease_seconds):
            return [unit]
        return self.proposer.new_trials([self.owner] * free, self.lease_seconds, self.config.budget.trials)

    def _abandoned(self) -> list[Unit]:
        """A unit that is queued, or whose process has ended. It is looked for at the start, and every few seconds."""
        now = time.monotonic()
        if now - self._recovered < RECOVER_SECONDS:
            return []
        if unit := self.units.abandoned(self.owner, self.lease_seconds):
            return [unit]
        self._recovered = now
        return []

    def _crashed(self, unit: Unit, outcome: Outcome) -> None:
        self.reporter.ended(unit, {}, outcome.failure, outcome)

    def _time_is_up(self) -> bool:
        """Whether the minutes are spent. A search that has ended for another reason does not end again."""
        minutes = self.config.budget.minutes
        if self.ended or minutes is None:
            return False
        return self.proposer.trained_seconds >= minutes * 60 * self.runner.workers

    def _start(self, unit: Unit) -> None:
        self.ended = False
        self.units.hold(unit)
        self._running[unit.number, unit.rung, unit.kind] = unit
        self.runner.submit(self.parts.work(unit, self.proposer.horizon(unit)))

    def _record(self, outcome: Outcome) -> None:
        if self._stopping and outcome.failure is not None:
            return  # the interrupt may be its cause: the unit is given back
        key = (outcome.trial, outcome.rung, outcome.kind)
        unit = self._running.get(key)
        if unit is None:
            return  # its lease was lost and taken again while it ran, so it ran twice here: the first outcome counted
        ended = self._ended(unit, outcome)
        del self._running[key]  # not before: after an error the unit is given back
        if outcome.failure and outcome.failure.kind is FailureKind.DISK_FULL:
            self.disks.failed(outcome.failure.message)
        if ended.recorded and outcome.checkpoint:
            self._kept(unit, outcome.checkpoint)
        if ended.queued:
            self._recovered = -math.inf  # there is a unit to lease now
        if ended.recorded:
            self.reporter.ended(unit, ended.values, ended.failure, outcome)
        else:
            self.reporter.say(f"{name_of(unit.number)} rung {unit.rung}: another process has taken it over")

    def _ended(self, unit: Unit, outcome: Outcome) -> Ended:
        """Record an outcome. Raises NoMetric, with what to do, if an objective names a metric that is not there."""
        try:
            return self.units.end(unit, outcome)
        except NoMetric as error:
            remove = location.command(self.store, self.study.name, "delete", self.study.name)
            raise NoMetric(
                f"{error} The objectives of a study cannot change: correct `objectives` in the search file, then "
                f"remove this study (`{remove}`) or give the search a new name (study: ...), and search again."
            ) from None

    def _kept(self, unit: Unit, checkpoint: Checkpoint) -> None:
        """A unit has written a checkpoint: it replaces that of the rung below, and others will be about as large."""
        file = Path(checkpoint.uri.removeprefix("file://"))
        with contextlib.suppress(OSError):  # at a URL
            self.disks.hold(self.runner.capacity + 1, file.stat().st_size)
        if unit.start_uri and self.config.keep != "all":
            cleaning.drop(unit.start_uri, self.study.name)

    def _interrupt(self) -> None:
        """Let running units save their state. If one fails meanwhile, it goes back to the queue."""
        for outcome in self.runner.interrupt(INTERRUPT_SECONDS):
            self._record(outcome)

    def _give_back(self) -> None:
        """Put the held units back in the queue, so that the next process can take them at once."""
        self.units.release(list(self._running.values()), self.owner)
        self._running.clear()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C (or SIGTERM) asks the loop to stop, the second one kills the process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

        def asked(number: int, frame: FrameType | None) -> None:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            self._stopping = True
            self.runner.stop_soon()
            # Not through Python's streams, which may be in the middle of a write.
            os.write(2, b"\nStopping: saving what runs (Ctrl-C again to stop at once) ...\n")

        for each in before:
            signal.signal(each, asked)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler if handler is not None else signal.SIG_DFL)


def _folders(storage: str, checkpoints: str | None) -> list[Path]:
    """The local folders that a search writes to: that of its checkpoints and that of a SQLite database."""
    file = file_of(parse(storage))
    kept = checkpoint_folder(checkpoints)
    return ([] if kept is None else [kept]) + ([] if file is None else [file.absolute().parent])


def _nothing_found(store: Store, study: Study, exhausted: Exhausted | None) -> NothingFound:
    """The reason why a study has no result, from the failures of its trials. exhausted: why there are no others."""
    failed = store.trials(study.id, states=(TrialState.FAILED,), purposes=("search",), limit=1000)
    if not failed:
        why = exhausted or "Its budget was spent before a trial could finish."
        return NothingFound(f"The study {study.name!r} has no result. {why}")
    kinds = Counter(trial.error_kind for trial in failed)
    first = failed[0]
    return NothingFound(
        f"The study {study.name!r} has no result: every trial failed "
        f"({', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}).",
        f"{first.name.capitalize()}, for one: {first.error_kind}: {first.error_text}",
    )
