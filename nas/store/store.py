"""Writes to a study database. Each method of `Store` is one transaction, documented where its change is defined.

A transaction may run twice: a connection may be lost after the commit. So a change that adds rows gets a token of its
call, by which a second run finds the rows of the first; see `models`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from nas.store import added_values, endings, finals, leases, measurements, studies, trials
from nas.store.reading import Reader
from nas.store.records import Study

P = ParamSpec("P")
T = TypeVar("T")


def _writes(change: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Store, P], T]:
    """A method that runs `change` in a transaction."""

    @wraps(change)
    def method(self: Store, *arguments: P.args, **options: P.kwargs) -> T:
        return self.database.write(lambda connection: change(connection, *arguments, **options))

    return method


def _adds(change: Callable[Concatenate[Connection, str, P], T]) -> Callable[Concatenate[Store, P], T]:
    """As `_writes`, for a change that also gets the token of the call."""

    @wraps(change)
    def method(self: Store, *arguments: P.args, **options: P.kwargs) -> T:
        token = uuid.uuid4().hex
        return self.database.write(lambda connection: change(connection, token, *arguments, **options))

    return method


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
        self._add_study(name, config, space_text, seed, objectives, data_hash)
        return self.study(name)

    _add_study = _adds(studies.create)
    update_study = _writes(studies.change)
    delete_study = _writes(studies.delete)
    add_space_version = _writes(studies.grow_space)

    add_trial = _adds(trials.add)
    promote = _adds(trials.promote)
    stop_trials = _writes(trials.stop)
    add_value = _writes(added_values.add)
    add_no_value = _writes(added_values.add_none)

    lease = _adds(leases.lease)
    renew = _writes(leases.renew)
    release = _writes(leases.release)
    release_all = _writes(leases.release_all)
    finish = _writes(endings.finish)
    fail = _writes(endings.fail)

    add_verdict = _adds(finals.add_verdict)
    add_measurements = _adds(measurements.add)
