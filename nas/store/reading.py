"""Reads a study database: thin methods, each of them one read transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import Connection

from nas.errors import DamageError
from nas.store import drawings, finals, leases, log, measurements, queries
from nas.store.database.engine import Database
from nas.store.measurements import Measured, Measurement
from nas.store.records import (
    SEARCH,
    Failed,
    Mark,
    Owner,
    Pace,
    RungResult,
    SpaceVersion,
    StoredVerdict,
    Study,
    Trained,
    Trial,
    TrialCount,
    TrialState,
    Unit,
    UnitState,
)
from nas.store.summaries import changes, columns, ranking
from nas.store.summaries.columns import Columns
from nas.store.upkeep.damage import Damage, of_result, of_study

if TYPE_CHECKING:
    from nas.documents import Documents

T = TypeVar("T")


class Reader:
    """A study database that is only read. Several threads may use it. Close it, or use it in a `with` statement."""

    def __init__(self, database: Database, folder: TemporaryDirectory[str] | None = None):
        """folder: with the files of the database; it is removed when the reader is closed."""
        self.database = database
        self._folder = folder

    @property
    def is_copy(self) -> bool:
        """Whether this reads a copy that was made when it was opened: later changes of the original are not seen."""
        return self._folder is not None

    def close(self) -> None:
        self.database.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def study(self, name: str) -> Study:
        return self._read(queries.study_by_name, name)

    def studies(self) -> list[Study]:
        return self._read(queries.studies)

    def space_versions(self, study_id: int) -> list[SpaceVersion]:
        return self._read(queries.space_versions, study_id)

    def leased(self, study_id: int, owner: str) -> list[Unit]:
        """The units that `owner` holds."""
        return self._read(leases.leased, study_id, owner)

    def owners(self, study_id: int) -> list[Owner]:
        return self._read(leases.owners, study_id)

    def documents(self, study_id: int, numbers: Collection[int], split: str) -> dict[int, Documents]:
        """The scores of single documents on a split, by the number of the trial; trials without them are missing."""
        return self._read(finals.documents_of, study_id, numbers, split)

    def results_since(
        self, study_id: int, sequence: int = 0, limit: int | None = None, *, light: bool = False
    ) -> list[Unit]:
        """The units that ended after place `sequence` (which counts from 1), in order, without a gap.

        light: without the text of their architectures, and those of rung 0 without their choices.
        """
        return self._read(log.results_since, study_id, sequence, limit, light)

    def log_since(self, study_id: int, number: int, sequence: int, limit: int) -> tuple[list[Trial], list[Unit]]:
        """The trials from `number` on and the units that ended after place `sequence`, at most `limit` of each.

        The trials are read first. So the units include everything that was known to whatever added these trials. Both
        are without the text of their architectures; the trials are without values too.
        """
        return self._read(log.since, study_id, number, sequence, limit)

    def trials(
        self,
        study_id: int,
        *,
        states: Collection[str] = (),
        purposes: Collection[str] = (),
        first: int = 0,
        limit: int | None = None,
        light: bool = False,
        since: Mark | None = None,
    ) -> list[Trial]:
        """Trials from number `first` on, at most `limit`; empty `states` or `purposes` mean all.

        light: without the architecture, the point and other long fields, see `Trial`. since: only trials that changed
        since that mark, and perhaps some that did not.
        """
        changed = None if since is None else changes.changed_since(study_id, since)
        return self._read(queries.trials, study_id, states, purposes, first, limit, light, changed)

    def columns(self, study_id: int, first: int, limit: int) -> Columns:
        """Light rows of the trials with numbers from `first` on, `limit` numbers."""
        return self._read(columns.columns, study_id, first, limit)

    def changed_columns(self, study_id: int, since: Mark) -> Columns:
        """Light rows of the trials that changed since that mark, and perhaps of some that did not."""
        return self._read(columns.changed_columns, changes.changed_since(study_id, since))

    def origins(self, study_id: int, first: int = 0) -> list[tuple[int, str, list[int]]]:
        """(number, operator, parents) of the trials from number `first` on."""
        return self._read(columns.origins, study_id, first)

    def choices(self, study_id: int, numbers: list[int]) -> dict[int, dict[str, Any]]:
        """The point of each of these trials, by number."""
        return self._read(columns.choices, study_id, numbers)

    def errors(self, study_id: int, numbers: list[int]) -> dict[int, str]:
        """The message of each of these trials that failed, by number."""
        return self._read(columns.errors, study_id, numbers)

    def seconds(self, study_id: int) -> dict[int, float]:
        """How long the units of each trial that ended well took, by its number."""
        return self._read(columns.seconds, study_id)

    def last_metrics(self, study_id: int) -> dict[int, dict[str, float | None]]:
        """The metrics at the end of the last finished rung of each trial, by its number."""
        return self._read(columns.last_metrics, study_id)

    def rungs(self, study_id: int, objective: str, most: int) -> list[tuple[int, int, int, str, float]]:
        """(number, rung, steps, arm, value) of the first `most` units of the search that ended well."""
        return self._read(columns.rungs, study_id, objective, most)

    def probes(self, study_id: int, most: int) -> dict[int, dict[str, float]]:
        """What the probe of each trial found, by its number, for the first `most` probes that ended."""
        return self._read(columns.probes, study_id, most)

    def trial(self, study_id: int, number: int) -> Trial:
        return self._read(queries.trial_by_number, study_id, number)

    def drawing(self, study_id: int, architecture_hash: str) -> Any:
        """The plain data of `searchspace.lines.kept` for an architecture; None if there is none, or it is damaged."""
        return self._read(drawings.read, study_id, architecture_hash)

    def units(self, study_id: int, number: int) -> list[Unit]:
        """The rungs of a trial, lowest first."""
        return self._read(queries.units_of, study_id, number)

    def curve(self, study_id: int, number: int) -> list[tuple[int, float | None]]:
        """(step, training loss) of a trial over all its rungs."""
        return self._read(queries.curve, study_id, number)

    def metrics(self, study_id: int, number: int, rung: int) -> dict[str, float | None]:
        """What was measured at the end of a rung."""
        return self._read(queries.metrics, study_id, number, rung)

    def counts(self, study_id: int) -> list[TrialCount]:
        """How many trials of each purpose are in each state."""
        return self._read(queries.counts, study_id)

    def failures(self, study_id: int) -> list[Failed]:
        """The failed trials by number, those of the finals too."""
        return self._read(queries.failures, study_id)

    def arms(self, study_id: int, purpose: str) -> dict[str, int]:
        """How many trials of this purpose each arm has."""
        return self._read(queries.arms, study_id, purpose)

    def open_units(self, study_id: int) -> Counter[UnitState]:
        """How many units are queued and how many are leased; empty if there is nothing left to run."""
        return self._read(queries.open_units, study_id)

    def unfinished(self, study_id: int) -> list[Unit]:
        """The units that are queued or leased, with their progress and without their architectures."""
        return self._read(changes.unfinished, study_id)

    def pace(self, study_id: int) -> list[Pace]:
        """How many units ended well and how long they took, by purpose, rung and steps."""
        return self._read(changes.pace, study_id)

    def trained(self, study_id: int) -> Trained:
        """What the units of the search that ended have trained: steps, FLOPs, device-seconds."""
        return self._read(changes.trained, study_id)

    def mark(self, study_id: int) -> Mark:
        """This moment in the life of a study, for `trials(since=...)`."""
        return self._read(changes.mark, study_id)

    def verdict(self, study_id: int) -> StoredVerdict | None:
        """How the finals ended, as stored last; None if no verdict was stored."""
        return self._read(finals.newest_verdict, study_id)

    def trained_seconds(self, study_id: int, purpose: str | None = None) -> float:
        """The time spent in the units (of this purpose) that ended, summed over the workers."""
        return self._read(queries.trained_seconds, study_id, purpose)

    def next_number(self, study_id: int, purpose: str = SEARCH) -> int:
        """The number of the next trial of this purpose."""
        return self._read(queries.next_number, study_id, purpose)

    def best(
        self,
        study_id: int,
        objective: str | None = None,
        limit: int | None = 10,
        *,
        states: Collection[str] = (TrialState.COMPLETE,),
        purposes: Collection[str] = (),
        longest: bool = False,
        reached: float | None = None,
    ) -> list[Trial]:
        """The best trials by an objective (None: the study's first), best first. longest: those trained longest first.

        reached: only trials that are at least as good as this value. Raises UsageError if the study has no such
        objective.
        """
        return self._read(ranking.best, study_id, objective, limit, states, purposes, longest, reached)

    def rung_results(self, study_id: int, objective: str, limit: int) -> list[RungResult]:
        """What the trials of the search reached at each rung in an objective; the first `limit` results."""
        return self._read(ranking.rung_results, study_id, objective, limit)

    def pareto(
        self,
        study_id: int,
        objectives: Sequence[str] | None = None,
        *,
        states: Collection[str] = (TrialState.COMPLETE,),
        purposes: Collection[str] = (),
        longest: bool = False,
    ) -> list[Trial]:
        """The Pareto front over these objectives (None: the study's). longest: only of the trials trained longest.

        Raises UsageError if the study has no such objective.
        """
        return self._read(ranking.pareto, study_id, objectives, states, purposes, longest)

    def architecture(self, prefix: str) -> tuple[str, str]:
        """(hash, text) of the one architecture whose hash begins with `prefix`."""
        return self._read(queries.architecture_by_prefix, prefix)

    def check_result(self, study_id: int, number: int, *, verdict: bool) -> None:
        """Raises DamageError that names a row if a trial's study, architecture or results, or with `verdict` those of
        the finals, do not agree with their checksums."""
        self._check(partial(of_result, study_id=study_id, number=number, verdict=verdict))

    def check_study(self, study_id: int) -> None:
        """Raises DamageError that names a row if what a study asks for or its spaces do not agree with their checksums;
        neither may the trials and results of a study that has few."""
        self._check(partial(of_study, study_id=study_id))

    def _check(self, rows: Callable[[Connection], Iterator[Damage]]) -> None:
        found = self._read(lambda connection: next(rows(connection), None))
        if found is not None:
            raise DamageError(f"{self.database.place} is damaged: {found}. `{self.database.doctor}` lists all.")

    def measurements(
        self,
        operation: str | None = None,
        *,
        device: str | None = None,
        problem: str | Sequence[str] | None = None,
    ) -> list[Measurement]:
        """What was measured, oldest first: of an operation, on the device with this key, on this problem or these."""
        return self._read(measurements.known, operation, device, problem)

    def measured(self, most: int, *, only: Collection[str] = (), without: Collection[str] = ()) -> list[Measured]:
        """What was measured, by operation, problem and device; at most `most` rows.

        only: of these operations, if there are any; without: not of these.
        """
        return self._read(measurements.summary, most, only, without)

    def devices(self) -> dict[str, dict[str, Any]]:
        """The fingerprint of every device that something was measured on, by its key."""
        return self._read(measurements.devices)

    def _read(self, query: Callable[..., T], *arguments: Any) -> T:
        def work(connection: Connection) -> T:
            return query(connection, *arguments)

        return self.database.read(work)
