"""Measurements of the tuner: rows are added, never changed, and read in the order in which they were added."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, text

from nas.store import models
from nas.store.models import measurement
from nas.store.records import Measurement
from nas.store.types import Document, now, storable

_device = models.device
_KEEP_DEVICE = text("INSERT INTO device (hash, fingerprint) VALUES (:hash, :fingerprint) ON CONFLICT DO NOTHING")
_KEEP_DEVICE = _KEEP_DEVICE.bindparams(bindparam("fingerprint", type_=Document))


def add(connection: Connection, token: str, fingerprint: Mapping[str, Any], measured: Sequence[Measurement]) -> None:
    """Insert what was measured on a device (a fingerprint with its `key`): all of it or nothing.

    A retry of the same call inserts nothing.
    """
    if connection.execute(select(measurement.c.id).where(measurement.c.token == token).limit(1)).first():
        return
    known = select(_device.c.id).where(_device.c.hash == fingerprint["key"])
    if (found := connection.execute(known).scalar()) is None:
        row = {"hash": fingerprint["key"], "fingerprint": dict(fingerprint)}
        connection.execute(_KEEP_DEVICE, row)
        found = connection.execute(known).scalar_one()
    for each in measured:
        values = {name: getattr(each, name) for name in _COPIED}
        values |= {"samples": list(each.samples) or None, "device_id": found, "token": token, "created_at": now()}
        values["message"] = None if each.message is None else storable(each.message)
        connection.execute(insert(measurement).values(values))


_COPIED = (
    *("operation", "problem", "dtype", "implementation", "configuration", "source"),
    *("milliseconds", "low", "high", "failure", "turns", "resources"),
)


def known(
    connection: Connection,
    operation: str | None = None,
    *,
    device: str | None = None,
    problem: str | Sequence[str] | None = None,
) -> list[Measurement]:
    """The measurements, oldest first: of an operation, on the device with this key, on this problem or these.

    None means any.
    """
    columns = [measurement.c[name] for name in (*_COPIED, "samples", "message")]
    query = select(*columns, _device.c.hash.label("device")).join(_device, _device.c.id == measurement.c.device_id)
    for column, wanted in (
        (measurement.c.operation, operation),
        (_device.c.hash, device),
        (measurement.c.problem, problem),
    ):
        if wanted is not None:
            query = query.where(column == wanted if isinstance(wanted, str) else column.in_(wanted))
    rows = connection.execute(query.order_by(measurement.c.id)).mappings()
    return [Measurement(**{**row, "samples": tuple(row["samples"] or ())}) for row in rows]


def devices(connection: Connection) -> dict[str, dict[str, Any]]:
    """The fingerprint of every device that something was measured on, by its key."""
    return {row.hash: row.fingerprint for row in connection.execute(select(_device.c.hash, _device.c.fingerprint))}


@dataclass(frozen=True)
class Measured:
    """How many times a problem was measured on a device, how often that failed, and the lowest milliseconds."""

    operation: str
    dtype: str
    problem: str
    device: str
    count: int
    failures: int
    milliseconds: float | None


def summary(
    connection: Connection, most: int, *, only: Collection[str] = (), without: Collection[str] = ()
) -> list[Measured]:
    """What was measured, by operation, problem and device; at most `most` rows.

    only: of these operations, if there are any; without: not of these.
    """
    columns = measurement.c.operation, measurement.c.dtype, measurement.c.problem, _device.c.hash
    found = func.count(), func.count(measurement.c.failure), func.min(measurement.c.milliseconds)
    query = select(*columns, *found).join(_device, _device.c.id == measurement.c.device_id)
    query = query.where(measurement.c.operation.not_in(without))
    if only:
        query = query.where(measurement.c.operation.in_(only))
    return [Measured(*row) for row in connection.execute(query.group_by(*columns).order_by(*columns).limit(most))]
