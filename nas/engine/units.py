"""The life of a unit: leased, kept alive, scored, finished, failed or given back. The one place where it happens.

The search loop, `nas ask`, `nas tell` and the Python study all use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from nas.engine import leases
from nas.engine.leases import Heartbeat
from nas.engine.proposer import Proposer
from nas.errors import StoreError, UsageError
from nas.store import Ending, Store, Study, Unit, UnitKind
from nas.work import Failure, FailureKind, Outcome
from searchspace.errors import nearest


@dataclass(frozen=True)
class Ended:
    """What was recorded about a unit: its values, or its failure.

    recorded: False if the lease was lost, so that nothing was stored. queued: a unit of this trial is waiting now: the
    same one again after a lost worker, or the training after a probe.
    """

    recorded: bool
    values: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    queued: bool = False


class Units:
    """The units of one study that this process works on.

    attempts: how many times to try a unit whose worker is lost. takeovers: how many times a unit may be started in all,
    if the processes that held it ended; None means `attempts`. heartbeat: renews the leases of held units; without it
    the holder renews them itself. crashed: called with each unit that was tried that often.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        proposer: Proposer,
        *,
        attempts: int,
        takeovers: int | None = None,
        heartbeat: Heartbeat | None = None,
        crashed: Callable[[Unit, Outcome], None] = lambda unit, outcome: None,
    ) -> None:
        self.store, self.study, self.proposer = store, study, proposer
        self.attempts, self.takeovers = attempts, attempts if takeovers is None else takeovers
        self.heartbeat, self.crashed = heartbeat, crashed

    def abandoned(self, owner: str, seconds: float) -> Unit | None:
        """A unit that is queued, or whose lease ran out, or whose process has ended, now leased to `owner`.

        A unit that was tried as often as `attempts` and `takeovers` allow has ended the processes that ran it, so it
        fails as crashed.
        """
        gone = leases.dead(holder.name for holder in self.store.owners(self.study.id))
        while found := self.store.lease(self.study.id, owner, 1, seconds, dead_owners=gone):
            (unit,) = found
            if unit.attempt - unit.released <= self.takeovers:
                return unit
            failure = Failure(FailureKind.CRASHED, _why_crashed(self.takeovers))
            outcome = Outcome(trial=unit.number, rung=unit.rung, kind=unit.kind.value, seconds=0.0, failure=failure)
            if self._fail(unit, outcome, failure, {}).recorded:
                self.crashed(unit, outcome)
        return None

    def hold(self, unit: Unit) -> None:
        """Keep the lease of `unit` alive until it ends."""
        if self.heartbeat:
            self.heartbeat.hold(unit.id)

    def renew(self, unit_id: int, owner: str, seconds: float) -> bool:
        """Extend a lease; False if another owner has the unit."""
        return bool(self.store.renew([unit_id], owner, seconds))

    def end(self, unit: Unit, outcome: Outcome) -> Ended:
        """Score and record what a unit gave. Raises UsageError if a metric that an objective needs is missing."""
        values, failure = self.proposer.scores.after(unit, self.proposer.architecture(unit), outcome)
        if failure is None:
            ended = self._finish(unit, outcome, values)
        elif failure.kind.uncounted:
            ended = self._put_back(unit, failure)
        else:
            ended = self._fail(unit, outcome, failure, values)
        self._drop(unit)
        return ended

    def _finish(self, unit: Unit, outcome: Outcome, values: dict[str, float]) -> Ended:
        assert unit.owner is not None  # it is leased
        probed = unit.kind is UnitKind.PROBE
        sequence = self.store.finish(
            unit.id,
            unit.owner,
            unit.attempt,
            values,
            dict(outcome.metrics),
            curve=outcome.curve,
            checkpoint=(kept.uri, kept.sha256) if (kept := outcome.checkpoint) else None,
            seconds=outcome.seconds,
            device=outcome.device,
            last=self.proposer.is_last(unit),
            then=self.proposer.first_steps(unit) if probed else None,
            by_document=outcome.documents if unit.final is not None else None,
            evidence=outcome.evidence,
        )
        return Ended(sequence is not None, values, None, queued=probed and sequence is not None)

    def _fail(self, unit: Unit, outcome: Outcome, failure: Failure, values: dict[str, float]) -> Ended:
        assert unit.owner is not None  # it is leased
        ending = self.store.fail(
            unit.id,
            unit.owner,
            unit.attempt,
            failure.kind.value,
            failure.message,
            seconds=outcome.seconds,
            requeue=failure.kind.retried,
            max_attempts=self.attempts,
        )
        return Ended(ending is not Ending.LOST, values, failure, queued=ending is Ending.REQUEUED)

    def _put_back(self, unit: Unit, failure: Failure) -> Ended:
        """Queue the unit again. The attempt does not count."""
        assert unit.owner is not None  # it is leased
        held = bool(self.store.release([unit.id], unit.owner))
        return Ended(held, {}, failure, queued=held)

    def release(self, units: Collection[Unit], owner: str) -> None:
        """Put units back in the queue, so that the next process begins with them at once."""
        with contextlib.suppress(StoreError):  # what cannot be given back is free when its lease has run out
            self.store.release([unit.id for unit in units], owner)
        for unit in units:
            self._drop(unit)

    def release_all(self, owners: Collection[str]) -> None:
        """As `release`, for all units that these owners hold."""
        with contextlib.suppress(StoreError):
            self.store.release_all(self.study.id, owners)

    def _drop(self, unit: Unit) -> None:
        if self.heartbeat:
            self.heartbeat.drop(unit.id)


def kind_of_failure(name: str) -> FailureKind:
    """The kind of failure of this name. Raises UsageError if no trial fails so."""
    known = [each.value for each in FailureKind if not each.uncounted]
    if name not in known:
        raise UsageError(f"No trial fails as {name!r}.{nearest(name, known)} The kinds: {', '.join(known)}.")
    return FailureKind(name)


def _why_crashed(attempts: int) -> str:
    times = "once" if attempts == 1 else f"{attempts} times"
    return (
        f"The unit was started {times}, and each time the process that ran it ended without a result or let its lease "
        "run out (`limits.attempts`)."
    )
