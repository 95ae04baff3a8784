"""The table of latencies on a device: of pieces, of whole architectures and of the gauge.

They are rows of the database table `measurement`. A row is valid while the code (`nas.latency.code`) is the same and
the same tuned kernels serve it. Without a database they are kept in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nas.latency import served
from nas.latency.bench import Action
from nas.latency.code import code
from nas.latency.evidence import LOADED
from nas.latency.measured import PhaseLatency, quiet_gauge
from nas.latency.runs import Setting
from nas.latency.stored import GAUGE, MODEL, PIECE, SUM
from nas.store import Measurement, Reader, Store
from tuner.device import fingerprint

KEPT = ("samples", "coverage", "peak_bytes", "load", "joules")  # of a latency, next to its times


@dataclass(frozen=True)
class Entry:
    """Milliseconds with their interval. served: the choices of tuned kernels. details: further values, plain data.

    quiet: milliseconds of the gauge that counted as quiet then; None if unknown.
    """

    milliseconds: float
    low: float
    high: float
    served: served.Rows = ()
    details: Mapping[str, Any] | None = None
    quiet: float | None = None

    def at(self, quiet: float | None) -> Entry:
        """The same if this time of the gauge counts as quiet."""
        if quiet is None or self.quiet is None or quiet == self.quiet:
            return self
        factor, details = quiet / self.quiet, dict(self.details or {})
        low, middle, high = (factor * each for each in (self.low, self.milliseconds, self.high))
        if details.get("repeated"):
            details["repeated"] *= factor
        if details.get("load"):
            details["load"] /= factor
            high = max(high, self.high) if details["load"] > LOADED else high  # as of what was measured under load
        return replace(self, milliseconds=middle, low=low, high=high, details=details or None, quiet=quiet)

    @property
    def repeated(self) -> float:
        """Milliseconds of a later call of the same piece in one model."""
        return (self.details or {}).get("repeated") or self.milliseconds

    @property
    def elements(self) -> tuple[int, ...]:
        """The numbers of elements of a piece's parameters, known for pieces that were timed in training."""
        return tuple((self.details or {}).get("elements", ()))


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
        told: dict[str, Any] = {name: (entry.details or {}).get(name) for name in KEPT}
        if told["samples"] is None or told["coverage"] is None:  # a damaged row
            return None
        return PhaseLatency(
            phase=setting.phase,
            milliseconds=entry.milliseconds,
            low=entry.low,
            high=entry.high,
            served=entry.served,
            tokens_per_second=1e3 * setting.tokens / entry.milliseconds,
            **told,
        )

    def keep_model(self, architecture: str, setting: Setting, found: PhaseLatency) -> None:
        """Store the latency of an architecture."""
        details = {name: getattr(found, name) for name in KEPT}
        entry = Entry(found.milliseconds, found.low, found.high, found.served, details)
        self._keep(MODEL, {problem(setting, architecture=architecture): entry})

    def keep_sums(self, setting: Setting, found: Mapping[str, tuple[float, served.Rows]]) -> None:
        """Store the sums of the pieces of architectures, by their hashes, next to what was measured."""
        entries = {
            problem(setting, architecture=architecture): Entry(time, time, time, rows)
            for architecture, (time, rows) in found.items()
        }
        self._keep(SUM, {key: each for key, each in entries.items() if not _are_alike(self._find(SUM, key), each)})

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
        if entry is None or not served.still(entry.served):
            return None
        if kind == GAUGE:
            return entry
        return entry.at(self.remembered if type(self.store) is Reader else self.quiet)

    def _read(self, kind: str) -> dict[str, Entry]:
        if kind not in self._known:
            rows = [] if self.store is None else self.store.measurements(kind, device=self.device.key)
            entries = {row.problem: _entry(row) for row in rows if row.source == code()}
            self._known[kind] = {key: entry for key, entry in entries.items() if entry is not None}
        return self._known[kind]

    def _keep(self, kind: str, found: Mapping[str, Entry]) -> None:
        if kind != GAUGE:
            found = {key: replace(entry, quiet=self.quiet) for key, entry in found.items()}
        self._read(kind).update(found)
        if isinstance(self.store, Store) and found:
            rows = [_row(kind, key, entry) for key, entry in found.items()]
            self.store.add_measurements(self.device.to_dict(), rows)


def problem(setting: Setting, **what: Any) -> str:
    """Canonical JSON of the setting and `what` was timed, without the device, which each row has."""
    known = {"phase": setting.phase, "batch": setting.batch, "length": setting.length, "threads": setting.threads}
    if setting.depth is not None:
        known["depth"] = setting.depth
    if setting.phase == "generate":
        known["new_tokens"] = setting.new_tokens
    return json.dumps({**known, **what}, sort_keys=True, separators=(",", ":"))


def piece_problem(setting: Setting, action: Action) -> str:
    """The problem of a piece: its setting, and the action on it."""
    piece = action.piece
    more = {name: True for name in ("reused", "hot") if getattr(action, name)}
    return problem(replace(setting, length=piece.length, depth=None), action=action.does, piece=piece.text(), **more)


def _are_alike(one: Entry | None, other: Entry) -> bool:
    """Whether they differ by rounding alone."""
    return one is not None and one.served == other.served and math.isclose(one.milliseconds, other.milliseconds)


def _row(kind: str, key: str, entry: Entry) -> Measurement:
    # The keys that stored rows have.
    more = {"served": list(entry.served), "told": entry.details, "quiet": entry.quiet}
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


def _entry(row: Measurement) -> Entry | None:
    """None for a row that is damaged: what it stood for is measured again."""
    try:
        more = json.loads(row.configuration)
        served, told, quiet = tuple(more["served"]), more["told"], more.get("quiet")
        middle = row.milliseconds or math.nan
        low, high = row.low or middle, row.high or middle
        details = dict(told) if told else {}
        further = [quiet, details.get("repeated", middle), details.get("load")]
        numbers = [low, middle, high, *(each for each in further if each is not None)]
        whole = low <= middle <= high and all(math.isfinite(each) and each > 0 for each in numbers)
        kept = (details[name] for name in KEPT if details.get(name) is not None)
        whole &= all(math.isfinite(each) and each >= 0 for each in kept)
        whole &= all(type(each) is int for each in details.get("elements", ()))
        return Entry(middle, low, high, served, details or None, quiet) if whole else None
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
