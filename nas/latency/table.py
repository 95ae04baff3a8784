"""What was measured on a device of pieces, of whole architectures and of the gauge: rows of the study database.

A row counts while the code of the blocks is what it was and the tuned kernels serve it as they did. Without a database
it is kept in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nas.latency import served
from nas.latency.code import code
from nas.latency.measured import PhaseLatency, quiet_gauge
from nas.latency.runs import Setting
from nas.store import Measurement, Store
from tuner.device import fingerprint

PIECE, MODEL, GAUGE = "latency of a piece", "latency of a model", "latency of the gauge"


@dataclass(frozen=True)
class Entry:
    """Milliseconds with their interval, what served, and what else there is to tell."""

    milliseconds: float
    low: float
    high: float
    served: served.Rows = ()
    told: Mapping[str, Any] | None = None

    @property
    def repeated(self) -> float:
        """Milliseconds right after a copy of itself."""
        return self.told["repeated"] if self.told else self.milliseconds


class Table:
    """What is known of a device on which torch has so many threads."""

    def __init__(self, store: Store | None = None, device: str = "cpu", threads: int = 1) -> None:
        self.store, self.device, self.threads = store, fingerprint(device), threads
        self._name = device
        self._known: dict[str, dict[str, Entry]] = {}

    def piece(self, problem: str) -> Entry | None:
        """What is known of a piece, by its problem as text."""
        return self._find(PIECE, problem)

    def keep_pieces(self, found: Mapping[str, Entry]) -> None:
        """Remember pieces, by their problems as text."""
        self._keep(PIECE, found)

    def model(self, architecture: str, setting: Setting) -> PhaseLatency | None:
        """What was measured of an architecture, by its hash."""
        entry = self._find(MODEL, problem(setting, architecture=architecture))
        if entry is None or entry.told is None:
            return None
        return PhaseLatency(
            phase=setting.phase,
            milliseconds=entry.milliseconds,
            low=entry.low,
            high=entry.high,
            served=entry.served,
            **entry.told,
        )

    def keep_model(self, architecture: str, setting: Setting, found: PhaseLatency) -> None:
        """Remember what was measured of an architecture."""
        told = {name: getattr(found, name) for name in ("samples", "coverage", "peak_bytes", "load")}
        entry = Entry(found.milliseconds, found.low, found.high, found.served, told)
        self._keep(MODEL, {problem(setting, architecture=architecture): entry})

    @cached_property
    def quiet(self) -> float:
        """Milliseconds of the gauge when this device was quietest, as far as anybody saw; measured once a process."""
        known, now = self.remembered, quiet_gauge(self._name, self.threads)
        if known is not None and known <= now:
            return known
        self._keep(GAUGE, {json.dumps({"threads": self.threads}): Entry(now, now, now)})
        return now

    @property
    def remembered(self) -> float | None:
        """Milliseconds of the gauge when it was quietest before, None where nobody looked."""
        known = self._find(GAUGE, json.dumps({"threads": self.threads}))
        return None if known is None else known.milliseconds

    def _find(self, kind: str, key: str) -> Entry | None:
        entry = self._read(kind).get(key)
        return entry if entry is not None and served.still(entry.served) else None

    def _read(self, kind: str) -> dict[str, Entry]:
        if kind not in self._known:
            rows = [] if self.store is None else self.store.measurements(kind, device=self.device.key)
            self._known[kind] = {row.problem: _entry(row) for row in rows if row.source == code() and row.milliseconds}
        return self._known[kind]

    def _keep(self, kind: str, found: Mapping[str, Entry]) -> None:
        self._read(kind).update(found)
        if self.store is not None and found:
            rows = [_row(kind, key, entry) for key, entry in found.items()]
            self.store.add_measurements(self.device.to_dict(), rows)


def problem(setting: Setting, **what: Any) -> str:
    """Canonical JSON of what was timed; the device is the row's."""
    known = {"phase": setting.phase, "batch": setting.batch, "length": setting.length, "threads": setting.threads}
    return json.dumps({**known, **what}, sort_keys=True, separators=(",", ":"))


def _row(kind: str, key: str, entry: Entry) -> Measurement:
    told = {"served": list(entry.served), "told": entry.told}
    return Measurement(
        operation=kind,
        problem=key,
        dtype="float32",
        implementation="",
        configuration=json.dumps(told, sort_keys=True, separators=(",", ":")),
        source=code(),
        milliseconds=entry.milliseconds,
        low=entry.low,
        high=entry.high,
    )


def _entry(row: Measurement) -> Entry:
    told = json.loads(row.configuration)
    assert row.milliseconds is not None
    low, high = row.low or row.milliseconds, row.high or row.milliseconds
    return Entry(row.milliseconds, low, high, tuple(told["served"]), told["told"])
