"""Writes to the study database: thin methods, each of them one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nas.store import endings, finals, leases, limits, measurements, studies, trials
from nas.store.endings import Ending
from nas.store.measurements import Measurement
from nas.store.reading import Reader
from nas.store.records import MAIN, NewTrial, Study, TrialAdded, TrialRefused, Unit, UnitKind
from nas.store.upkeep import rescoring
from nas.work import Progress

if TYPE_CHECKING:
    from nas.documents import Documents

LARGEST_SEED = 2**63 - 1


class Store(Reader):
    """A study database. Several threads may use it. Close it, or use it in a `with` statement."""

    def create_study(
        self,
        name: str,
        config: dict[str, Any],
        space_text: str,
        seed: int,
        objectives: list[dict[str, Any]],
        data_hash: str | None = None,
    ) -> Study:
        """Create a study. Objectives: [{"name": ..., "direction": "minimize" | "maximize"}].

        Raises UsageError if the name is taken, ValueError if the name or the objectives are missing.
        """
        if not name or not objectives:
            raise ValueError(f"A study needs a name and objectives, but got name={name!r}, objectives={objectives!r}.")
        row = {"name": name, "config": config, "seed": _seed(seed), "objectives": objectives, "data_hash": data_hash}
        row |= {"version": _package_version(), "token": _token()}
        self.database.write(lambda connection: studies.create(connection, row, space_text))
        return self.study(name)

    def update_study(self, study_id: int, **values: Any) -> None:
        """Replace `config`, `data_hash` or `ending`. Raises ValueError for any other key."""
        if not values or not set(values) <= {"config", "data_hash", "ending"}:
            raise ValueError(f"Only config, data_hash and ending of a study may change, but got {sorted(values)}.")
        self.database.write(lambda connection: studies.change(connection, study_id, values))

    def delete_study(self, study_id: int) -> None:
        """Remove a study with everything that it recorded. Raises UsageError if a search is running in it."""
        self.database.write(lambda connection: studies.delete(connection, study_id))

    def add_space_version(self, study_id: int, text: str) -> int:
        """The number of the space's version with this text: a new one, unless the newest has the same text."""
        return self.database.write(lambda connection: studies.grow_space(connection, study_id, text))

    def add_trial(
        self,
        study_id: int,
        number: int,
        architecture: tuple[str, str],
        *,
        seed: int,
        purpose: str,
        operator: str,
        choices: Any,
        known_results: int,
        steps: int,
        known_trials: int | None = None,
        arm: str = MAIN,
        kind: UnitKind = UnitKind.TRAIN,
        parents: Sequence[int] = (),
        owner: str | None = None,
        lease_seconds: float = 60.0,
        cheap_values: Mapping[str, float] | None = None,
        evidence: Mapping[str, Any] | None = None,
        limit: int | None = None,
        failure: tuple[str, str] | None = None,
        space_version: int | None = None,
        costs: tuple[int, float] | None = None,
        drawing: Mapping[str, Any] | None = None,
        variant: str = "",
        recipe: Mapping[str, Any] | None = None,
    ) -> TrialAdded | TrialRefused:
        """Add a trial (architecture: (hash, text)) with its first unit, leased to `owner` if there is one.

        steps, kind: of that unit. limit: the largest number of trials of this arm and purpose. known_results,
        known_trials: what the strategy knew, see `Trial`. failure: (kind, text) of a proposal that cannot be trained,
        which is recorded as failed. evidence: how values that were measured were found, by objective, plain data.
        space_version: None is the newest. costs: parameters, and FLOPs of one training step. drawing:
        what `searchspace.lines.kept` reads, plain data. variant: what tells it
        apart from a trial of the same architecture, seed and purpose. recipe: options that replace those of the study's
        recipe. Raises ValueError for a seed or a value that cannot be stored.
        """
        limits.check_finite(cheap_values or {})
        limits.check_amount("step_flops", costs and costs[1])
        limits.check_lease(lease_seconds)
        new = NewTrial(
            study_id=study_id,
            number=number,
            arm=arm,
            architecture_hash=architecture[0],
            architecture=architecture[1],
            seed=_seed(seed),
            purpose=purpose,
            operator=operator,
            parents=tuple(parents),
            choices=choices,
            known_results=known_results,
            known_trials=known_trials,
            kind=kind,
            steps=steps,
            owner=owner,
            lease_seconds=lease_seconds,
            cheap_values=cheap_values or {},
            evidence=evidence or {},
            variant=variant,
            recipe=recipe,
            limit=limit,
            failure=failure,
            space_version=space_version,
            parameters=costs and costs[0],
            step_flops=costs and costs[1],
            drawing=drawing,
            token=_token(),
        )
        return self.database.write(lambda connection: trials.add(connection, new))

    def add_value(
        self,
        trial_id: int,
        objective: Mapping[str, str],
        value: float,
        evidence: Mapping[str, Any] | None = None,
        *,
        rung: int | None = None,
        check: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> bool:
        """Give a trial a value of an objective that needs no training -> whether nothing was known.

        objective: {"name": ..., "direction": "minimize" | "maximize"}; the study lists it from then on. evidence: how
        it was measured. rung: 1 + the place of an objective that the search waits for: the value is then in the study's
        sequence, as a probe that is done, unless there is a probe that found none. check: raises an error if this value
        does not belong to the study's first one of this name, whose evidence it gets; no other process adds a value in
        between. Raises ValueError for a value that is not finite, StoreError for a trial that was deleted.
        """
        limits.check_finite({objective["name"]: value})
        return self.database.write(
            lambda connection: rescoring.add(connection, trial_id, objective, value, evidence, rung, check)
        )

    def add_no_value(self, trial_id: int, rung: int, failure: tuple[str, str]) -> bool:
        """Record that a trial has no value of an objective that the search waits for -> whether that was unknown.

        rung: as in `add_value`. failure: (kind, text).
        """
        return self.database.write(lambda connection: rescoring.add_none(connection, trial_id, rung, failure))

    def promote(
        self, trial_id: int, rung: int, steps: int, *, owner: str | None = None, lease_seconds: float = 60.0
    ) -> Unit | None:
        """A unit for `rung` of a running trial whose rung below is done; None if there is one already or cannot be.

        Raises ValueError for a lease that is too long.
        """
        limits.check_lease(lease_seconds)
        token = _token()
        return self.database.write(
            lambda connection: trials.promote(connection, trial_id, rung, steps, owner, lease_seconds, token)
        )

    def stop_trials(self, study_id: int) -> int:
        """Stop the trials that wait for a promotion, at the end of a search -> how many."""
        return self.database.write(lambda connection: trials.stop(connection, study_id))

    def lease(
        self, study_id: int, owner: str, count: int = 1, seconds: float = 60.0, dead_owners: Collection[str] = ()
    ) -> list[Unit]:
        """Lease to `owner` up to `count` units that no process runs, for `seconds`; higher rungs first.

        Raises ValueError for a lease that is too long.
        """
        limits.check_lease(seconds)
        token = _token()
        return self.database.write(
            lambda connection: leases.lease(connection, study_id, owner, count, seconds, dead_owners, token)
        )

    def renew(
        self,
        unit_ids: Collection[int],
        owner: str,
        seconds: float = 60.0,
        progress: Mapping[int, Progress] | None = None,
    ) -> list[int]:
        """Extend leases and note the progress of the units, by id -> the ids that `owner` still holds.

        Raises ValueError for a lease that is too long.
        """
        limits.check_lease(seconds)
        known = progress or {}
        return self.database.write(lambda connection: leases.renew(connection, unit_ids, owner, seconds, known))

    def release(self, unit_ids: Collection[int], owner: str) -> list[int]:
        """Put units back in the queue without counting the attempt -> the ids that `owner` held."""
        return self.database.write(lambda connection: leases.release(connection, unit_ids, owner))

    def release_all(self, study_id: int, owners: Collection[str]) -> list[int]:
        """As `release`, for all units of a study that these owners hold."""
        return self.database.write(lambda connection: leases.release_all(connection, study_id, owners))

    def finish(
        self,
        unit_id: int,
        owner: str,
        attempt: int,
        objectives: Mapping[str, float],
        metrics: Mapping[str, float] | None = None,
        *,
        last: bool,
        then: int | None = None,
        curve: Sequence[tuple[int, float]] = (),
        checkpoint: tuple[str, str] | None = None,
        seconds: float = 0.0,
        device: str = "",
        by_document: Mapping[str, Documents] | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Record the result of a unit -> its place in the study's sequence, or None if the lease was lost.

        The same call again gives the same answer. curve: (step, training loss). checkpoint: (uri, SHA-256). last: no
        unit follows, so the trial is complete. then: after a probe, the steps of the training unit that follows.
        by_document: the scores of single held-out documents, by split. evidence: of a probe, how measured values were
        found, by objective, plain data.
        Raises ValueError for an objective or a time that is not finite, and for a metric that is too large.
        """
        limits.check_finite(objectives)
        limits.check_amount("seconds", seconds)
        outcome: dict[str, Any] = {"objectives": objectives, "metrics": metrics or {}, "curve": curve}
        outcome |= {"checkpoint": checkpoint, "seconds": seconds, "device": device, "last": last, "then": then}
        outcome |= {"documents": by_document or {}, "evidence": evidence or {}}
        return self.database.write(lambda connection: endings.finish(connection, unit_id, owner, attempt, **outcome))

    def fail(
        self,
        unit_id: int,
        owner: str,
        attempt: int,
        kind: str,
        text: str,
        seconds: float | None = None,
        *,
        requeue: bool = False,
        max_attempts: int = 3,
    ) -> Ending:
        """Record why a unit failed. requeue: queue it again if it was tried less than `max_attempts` times.

        Raises ValueError for a time that is not finite.
        """
        limits.check_amount("seconds", seconds)
        limit = max_attempts if requeue else None
        return self.database.write(
            lambda connection: endings.fail(connection, unit_id, owner, attempt, (kind, text), seconds, limit)
        )

    def add_verdict(self, study_id: int, document: dict[str, Any]) -> None:
        """Store how the finals ended, as plain data."""
        token = _token()
        self.database.write(lambda connection: finals.add_verdict(connection, study_id, document, token))

    def add_measurements(self, device: Mapping[str, Any], measured: Sequence[Measurement]) -> None:
        """Record what the tuner measured on `device` (a fingerprint with its `key`): all of it or nothing."""
        token = _token()
        self.database.write(lambda connection: measurements.add(connection, device, measured, token))


def _token() -> str:
    return uuid.uuid4().hex


def _seed(seed: int) -> int:
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"A seed must be from 0 to 2**63 - 1, but got {seed}.")
    return seed


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tessera-nas")
    except PackageNotFoundError:
        return "unknown"
