"""Reads a study database. Each method of `Reader` is one read transaction, documented where its query is defined."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection

from nas.store import drawings, finals, leases, log, queries, schema
from nas.store import measurements as tuned
from nas.store.database.engine import Database
from nas.store.summaries import changes, ranking
from nas.store.summaries import columns as rows

P = ParamSpec("P")
T = TypeVar("T")


def _reads(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Reader, P], T]:
    """A method that runs `query` in a transaction that changes nothing."""

    @wraps(query)
    def method(self: Reader, *arguments: P.args, **options: P.kwargs) -> T:
        return self.database.read(lambda connection: query(connection, *arguments, **options))

    return method


class Reader:
    """A study database that is only read. Several threads may use it. Close it, or use it in a `with` statement."""

    def __init__(self, database: Database):
        self.database = database

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    faults = _reads(schema.faults)
    study = _reads(queries.study_by_name)
    studies = _reads(queries.studies)
    space_versions = _reads(queries.space_versions)

    trial = _reads(queries.trial_by_number)
    trials = _reads(queries.trials)
    units = _reads(queries.units_of)
    curve = _reads(queries.curve)
    metrics = _reads(queries.metrics)
    architecture = _reads(queries.architecture_by_prefix)
    drawing = _reads(drawings.read)

    counts = _reads(queries.counts)
    arms = _reads(queries.arms)
    failures = _reads(queries.failures)
    open_units = _reads(queries.open_units)
    next_number = _reads(queries.next_number)
    trained_seconds = _reads(queries.trained_seconds)

    # What a search rebuilds its state from, and who runs what.
    results_since = _reads(log.results_since)
    log_since = _reads(log.since)
    leased = _reads(leases.leased)
    owners = _reads(leases.owners)

    # Summaries: many trials at once.
    best = _reads(ranking.best)
    pareto = _reads(ranking.pareto)
    rung_results = _reads(ranking.rung_results)
    columns = _reads(rows.columns)
    changed_columns = _reads(rows.changed_columns)
    origins = _reads(rows.origins)
    choices = _reads(rows.choices)
    errors = _reads(rows.errors)
    seconds = _reads(rows.seconds)
    last_metrics = _reads(rows.last_metrics)
    rungs = _reads(rows.rungs)
    probes = _reads(rows.probes)
    mark = _reads(changes.mark)
    unfinished = _reads(changes.unfinished)
    pace = _reads(changes.pace)
    trained = _reads(changes.trained)

    verdict = _reads(finals.newest_verdict)
    documents = _reads(finals.documents_of)

    measurements = _reads(tuned.known)
    measured = _reads(tuned.summary)
    devices = _reads(tuned.devices)
