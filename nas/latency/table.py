"""The table of latencies on a device: of pieces, of whole architectures and of the gauge.

They are rows of the database table `measurement`. A row is valid while the code is the same, and the same tuned kernels
serve it. Without a database they are kept in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from kernels.dispatch import sources
from kernels.dispatch.device import fingerprint
from nas.latency import served
from nas.latency.evidence import LOADED
from nas.latency.measured import PhaseLatency
from nas.latency.pieces import Call
from nas.latency.runs import Setting
from nas.latency.stored import GAUGE, MODEL, PIECE, SUM
from nas.latency.timing import quiet_gauge
from nas.store import Measurement, Reader, Store

KEPT = ("samples", "coverage", "peak_bytes", "load", "joules")  # of a latency, next to its times
RUNS = (  # what runs when a model does, and what times it
    *("kernels", "searchspace.primitives", "searchspace.combinators", "searchspace.backbones"),
    *("searchspace.contract", "searchspace.sharing"),
    *("nas.latency.bench", "nas.latency.measured", "nas.latency.predicted", "nas.latency.runs", "nas.latency.timing"),
    "tuner.measure.core",
)


@cache
def code() -> str:
    """A hash of the code that a latency depends on.

    It changes when a computation changes. It does not change with comments, docstrings, imports, the messages of
    errors, or the file that a function is in.
    """
    return sources.hash_of(*RUNS)


@dataclass(frozen=True)
class Entry:
    """Milliseconds with their interval, as on the quiet machine. served: the choices of tuned kernels. details: further
    values, plain data.
    """

    milliseconds: float
    low: float
    high: float
    served: served.Rows = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repeated(self) -> float:
        """Milliseconds of a later call of the same piece in one model."""
        return self.details.get("repeated", self.milliseconds)


class Table:
    """The latencies on a device; threads: of torch on a CPU. A `Reader` gives known times and keeps no new ones."""

    def __init__(self, store: Reader | None = None, device: str = "cpu", threads: int = 1) -> None:
        self.store, self.device, self.threads = store, fingerprint(device), threads
        self._name = device
        self._known: dict[str, dict[str, Entry]] = {}

    def piece(self, problem: str) -> Entry | None:
        """The latency of a piece, by its problem as text; None if unknown."""
        return self._find(PIECE, problem)

    def keep_pieces(self, found: Mapping[str, Entry]) -> None:
        """Store pieces, by their problems as text."""
        self._keep(PIECE, found)

    def model(self, architecture: str, setting: Setting) -> PhaseLatency | None:
        """The latency of an architecture, by its hash; None if unknown."""
        entry = self._find(MODEL, problem(setting, architecture=architecture))
        if entry is None:
            return None
        return PhaseLatency(
            phase=setting.phase,
            milliseconds=entry.milliseconds,
            low=entry.low,
            high=entry.high,
            served=entry.served,
            tokens_per_second=1e3 * setting.tokens / entry.milliseconds,
            **entry.details,
        )

    def keep_model(self, architecture: str, setting: Setting, found: PhaseLatency) -> None:
        """Store the latency of an architecture."""
        details = {name: getattr(found, name) for name in KEPT}
        entry = Entry(found.milliseconds, found.low, found.high, found.served, details)
        self._keep(MODEL, {problem(setting, architecture=architecture): entry})

    def keep_sums(self, setting: Setting, found: Mapping[str, tuple[float, served.Rows]]) -> None:
        """Store the sums of the pieces of architectures, by their hashes, next to what was measured."""
        keys = {problem(setting, architecture=architecture): each for architecture, each in found.items()}
        new = {key: Entry(time, time, time, rows) for key, (time, rows) in keys.items() if not self._find(SUM, key)}
        self._keep(SUM, new)

    @cached_property
    def quiet(self) -> float:
        """The lowest known milliseconds of the gauge on this device; measured once per process."""
        known, now = self.remembered, quiet_gauge(self._name, self.threads)
        if known is not None and known <= now:
            return known
        self._keep(GAUGE, {json.dumps({"threads": self.threads}): Entry(now, now, now)})
        return now

    @property
    def remembered(self) -> float | None:
        """The lowest milliseconds of the gauge in earlier processes; None if there are none."""
        known = self._find(GAUGE, json.dumps({"threads": self.threads}))
        return None if known is None else known.milliseconds

    def _find(self, kind: str, key: str) -> Entry | None:
        entry = self._read(kind).get(key)
        return entry if entry is not None and served.still(entry.served) else None

    def _read(self, kind: str) -> dict[str, Entry]:
        if kind not in self._known:
            rows = [] if self.store is None else self.store.measurements(kind, device=self.device.key)
            mine = [row for row in rows if row.source == code()]
            quiet = self._quiet(kind) if mine else None
            self._known[kind] = {row.problem: _entry(row, quiet) for row in mine}
        return self._known[kind]

    def _keep(self, kind: str, found: Mapping[str, Entry]) -> None:
        self._read(kind).update(found)
        if isinstance(self.store, Store) and found:
            rows = [_row(kind, key, entry, self._quiet(kind)) for key, entry in found.items()]
            self.store.add_measurements(self.device.to_dict(), rows)

    def _quiet(self, kind: str) -> float | None:
        """Milliseconds of the gauge that times of this kind are relative to; None for the gauge itself."""
        if kind == GAUGE:
            return None
        return self.remembered if type(self.store) is Reader else self.quiet


def problem(setting: Setting, **what: Any) -> str:
    """Canonical JSON of the setting and `what` was timed, without the device, which each row has."""
    known = {"phase": setting.phase, "batch": setting.batch, "length": setting.length, "threads": setting.threads}
    if setting.depth is not None:
        known["depth"] = setting.depth
    if setting.phase == "generate":
        known["new_tokens"] = setting.new_tokens
    return json.dumps({**known, **what}, sort_keys=True, separators=(",", ":"))


def piece_problem(setting: Setting, call: Call) -> str:
    """The problem of a piece: its setting, and how it is called."""
    more = {name: True for name, is_so in (("again", call.again), ("reused", not call.fresh)) if is_so}
    return problem(replace(setting, length=call.piece.length, depth=None), piece=call.piece.text(), **more)


def _row(kind: str, key: str, entry: Entry, quiet: float | None) -> Measurement:
    more = {"served": entry.served, "details": entry.details, "quiet": quiet}
    return Measurement(
        operation=kind,
        problem=key,
        dtype="float32",
        implementation="",
        configuration=json.dumps(more, sort_keys=True, separators=(",", ":")),
        source=code(),
        milliseconds=entry.milliseconds,
        low=entry.low,
        high=entry.high,
    )


def _entry(row: Measurement, quiet: float | None) -> Entry:
    """The entry of a row, scaled to what counts as quiet now: a time of the gauge, None if unknown."""
    assert row.milliseconds is not None and row.low is not None and row.high is not None
    more = json.loads(row.configuration)
    factor, details = quiet / more["quiet"] if quiet else 1.0, dict(more["details"])
    if "repeated" in details:
        details["repeated"] *= factor
    high = factor * row.high
    if details.get("load"):
        details["load"] /= factor
        high = max(high, row.high) if details["load"] > LOADED else high  # as of what was measured under load
    return Entry(factor * row.milliseconds, factor * row.low, high, tuple(more["served"]), details)
