"""A table of tuned problems and its file: which choice serves a problem, and why.

The lookup tries in this order: the same problem; the nearest tuned problem; the default of the operation. The nearest
problem must differ in no size by a factor of more than `BOUND`; operation, dtype and flags must be equal. An
implementation that is compiled for each shape serves only shapes that were tuned. A problem that was tuned gets its own
choice or the default.

Each entry says where it was measured: the fingerprint of the device with its driver, torch and Triton, and on a CPU the
number of threads. An entry that was measured elsewhere does not serve until `nas tune verify` has checked it here; then
it counts as near.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.dispatch.device import Device
from kernels.dispatch.registry import Choice, Operation, Problem

BOUND = 2.0  # the largest factor between a size and that of the tuned problem
MISSES = ("default", "error")


@dataclass(frozen=True)
class Where:
    """Where something was measured. device: the key of the fingerprint. threads: of torch on a CPU; None if unknown."""

    device: str
    threads: int | None = None

    def is_same(self, other: Where) -> bool:
        """Whether both are the same place; an unknown number of threads equals any."""
        return self.device == other.device and (None in (self.threads, other.threads) or self.threads == other.threads)


@dataclass(frozen=True)
class Served:
    """A choice and why it was made: `exact`, `locked` or `near` (with the tuned problem), or `default`."""

    choice: Choice
    why: str
    tuned: Problem | None = None
    milliseconds: float | None = None


@dataclass(frozen=True)
class Entry:
    """One tuned problem of a table."""

    problem: Problem
    choice: Choice
    milliseconds: float
    source: str  # the hash of the implementation's code when it was measured
    where: Where | None = None  # None for an entry that this process made
    checked: bool = False  # measured elsewhere, and found correct and not slower than the default here


class LockedMiss(LookupError):
    """A lock file has no entry for a problem, and it says that a miss is an error."""


class Table:
    """The tuned problems of one device.

    miss: `default`, or `error` in a lock file that must serve everything. Raises ValueError if it is anything else.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        miss: str = "default",
        origin: str = "",
        locked: bool = False,
        here: Where | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if miss not in MISSES:
            raise ValueError(f"miss must be one of {', '.join(MISSES)}, but got {miss!r}.")
        self.miss, self.origin, self.locked = miss, origin, locked
        self.here, self.about = here, about or {}
        self.all = list(entries)  # several entries of a problem were measured at different places
        self.entries: dict[Problem, Entry] = {}
        for entry in self.all:
            if entry.problem not in self.entries or self.is_here(entry):
                self.entries[entry.problem] = entry
        self._alike: dict[tuple, list[Entry]] = {}
        for entry in self.entries.values():
            if self.is_here(entry):
                self._alike.setdefault(kind(entry.problem), []).append(entry)

    def is_here(self, measured: Entry) -> bool:
        """Whether it was measured, or checked, where this process runs."""
        return self.here is None or measured.where is None or measured.where.is_same(self.here)

    @property
    def elsewhere(self) -> list[Entry]:
        """The entries that do not serve, because they were measured elsewhere."""
        return [each for each in self.entries.values() if not self.is_here(each)]

    @property
    def operations(self) -> set[str]:
        """The names of the operations that the table may serve."""
        return {known[0] for known in self._alike}

    def serve(self, operation: Operation, problem: Problem) -> Served:
        """What serves `problem`, and why. Raises LockedMiss if nothing does and a miss is an error."""
        entry = self.entries.get(problem)
        is_known = entry is not None and self.is_here(entry)
        fault = None if entry is None or not is_known else _fault(operation, entry, problem)
        if entry is not None and is_known and fault is None:
            why = "near" if entry.checked else "locked" if self.locked else "exact"
            return Served(entry.choice, why, problem, entry.milliseconds)
        if not is_known and self.miss != "error":
            found = self._near(operation, problem)
            if found is not None:
                return found
        if self.miss == "error":
            raise LockedMiss(
                f"{self.origin} has no valid entry for {problem} ({fault or self.missed(operation, problem)}), and "
                "it says that a miss is an error: tune it and lock again, or let the default serve a miss "
                "(nas tune lock FILE --miss default)."
            )
        return Served(operation.default_choice(problem), "default")

    def missed(self, operation: Operation, problem: Problem) -> str:
        """Why nothing in the table serves `problem`."""
        if not self.entries:
            return "there is no table" if not self.origin else f"{self.origin} is empty"
        known = self.entries.get(problem)
        if known is not None and not self.is_here(known):
            return f"it was measured elsewhere ({self.difference(known)}): `nas tune verify` checks it here"
        alike = self._alike.get(kind(problem), [])
        if not alike and any(kind(each.problem) == kind(problem) for each in self.elsewhere):
            return "similar problems were measured elsewhere: `nas tune verify` checks them here"
        if not alike:
            same = any(known.operation == problem.operation for known in self.entries)
            return (
                f"{operation.name} was tuned for other dtypes or flags" if same else f"{operation.name} was not tuned"
            )
        nearest = min(alike, key=lambda each: distance(each.problem, problem))
        apart = math.exp(distance(nearest.problem, problem))
        if apart > BOUND:
            sizes = " ".join(f"{name}={value}" for name, value in nearest.problem.sizes)
            return f"the nearest tuned problem, {sizes}, differs by a factor of {apart:.3g}"
        return _fault(operation, nearest, problem) or "its own entry cannot serve it"

    def difference(self, entry: Entry) -> str:
        """In which ways the place of an entry differs from this one."""
        there, here = entry.where or Where(""), self.here or Where("")
        devices = self.about.get("devices", {})
        one, other = devices.get(there.device, {}), self.about.get("here", {})
        names = ("name", "units", "capability", "driver", "torch", "triton")
        parts = [f"{name} {one.get(name) or 'none'}" for name in names if one and one.get(name) != other.get(name)]
        if there.device == here.device:
            parts.append(f"{there.threads} threads, not {here.threads}")
        return ", ".join(parts) or "on an unknown device"

    def _near(self, operation: Operation, problem: Problem) -> Served | None:
        alike = ((distance(each.problem, problem), each) for each in self._alike.get(kind(problem), []))
        near = sorted((pair for pair in alike if pair[0] <= math.log(BOUND)), key=lambda pair: pair[0])
        for _, each in near:
            if _fault(operation, each, problem) is None:
                return Served(each.choice, "near", each.problem, each.milliseconds)
        return None


def _fault(operation: Operation, entry: Entry, problem: Problem) -> str | None:
    """Why a choice is out of date or cannot run the problem; None if it is valid."""
    implementation = operation.implementations.get(entry.choice.implementation)
    if implementation is not None and entry.source != implementation.source:
        return f"{operation.name} has changed since {entry.choice.implementation} was measured"
    if implementation is not None and implementation.builds and problem != entry.problem:
        return f"{entry.choice.implementation} is compiled for each shape, which takes seconds"
    try:
        operation.check(entry.choice, problem)
    except ValueError as error:
        return str(error)
    return None


def kind(problem: Problem) -> tuple:
    """What two problems share if they differ only in their sizes."""
    names = tuple(name for name, _ in problem.sizes)
    return problem.operation, problem.device, problem.dtype, problem.flags, names


def distance(one: Problem, other: Problem) -> float:
    """The largest absolute logarithm of a ratio of sizes."""
    pairs = zip(one.sizes, other.sizes, strict=True)
    return max((abs(math.log(max(a, 1) / max(b, 1))) for (_, a), (_, b) in pairs), default=0.0)


def read(path: Path, here: Device | None = None, threads: int | None = None, *, lock: bool = False) -> Table:
    """The table in a file. here, threads: the device and number of threads of this process; without `here`, entries
    serve wherever they were measured. lock: the file must be a lock file. Raises ValueError, naming the file, if it
    cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        _check_hash(data, lock)
        made = Where((data.get("device") or {}).get("key", "unknown"), data.get("threads"))
        fingerprints = [each for each in (data.get("device"), *data.get("devices", [])) if each]
        about = {
            "devices": {each["key"]: each for each in fingerprints},
            "here": here.to_dict() if here else {},
            "load": data.get("load", []),
        }
        return Table(
            [_entry(row, made) for row in data["entries"]],
            data.get("miss", "default"),
            str(path),
            lock,
            Where(here.key, threads) if here else None,
            about,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a table of tuned kernels: {type(error).__name__}: {str(error)[:500]}"
        ) from error


def _check_hash(data: Mapping[str, Any], lock: bool) -> None:
    """Raises ValueError if a lock file was changed or has no hash."""
    is_lock = lock or "miss" in data
    if is_lock and not isinstance(data.get("sha256"), str):
        raise ValueError("it has no hash, so it is not a lock file, or was edited; make one with `nas tune lock`")
    if data.get("sha256") not in (None, digest(data)):
        raise ValueError("it was changed after it was locked; lock again instead of editing it")


def written(entries: Iterable[Entry], **about: Any) -> str:
    """The text of a table file; `about` describes its device and versions."""
    whole = {**about, "entries": [*map(_row, entries)]}
    if "miss" in about:  # a lock file, which serves the same choices everywhere
        whole = {**about, "sha256": digest(whole), "entries": whole["entries"]}
    return json.dumps(whole, indent=1) + "\n"


def _row(entry: Entry) -> dict[str, Any]:
    problem, choice, where = entry.problem, entry.choice, entry.where
    row = {
        "operation": problem.operation,
        "device": problem.device,
        "dtype": problem.dtype,
        "flags": dict(problem.flags),
        "sizes": dict(problem.sizes),
        "implementation": choice.implementation,
        "configuration": dict(choice.configuration),
        "milliseconds": entry.milliseconds,
        "source": entry.source,
    }
    row |= {"measured": {"device": where.device, "threads": where.threads}} if where else {}
    return row | ({"checked": True} if entry.checked else {})


def digest(data: Mapping[str, Any]) -> str:
    """A hash of all of a lock file but the hash."""
    rest = {name: value for name, value in data.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _entry(row: Mapping[str, Any], otherwise: Where) -> Entry:
    """The entry of a row of the file; otherwise: the place that the file names for all rows."""
    sizes = tuple((name, int(size)) for name, size in row["sizes"].items())
    problem = Problem(row["operation"], row["device"], row["dtype"], sizes, tuple(row["flags"].items()))
    choice = Choice.of(row["implementation"], row["configuration"])
    where = Where(row["measured"]["device"], row["measured"].get("threads")) if "measured" in row else otherwise
    return Entry(problem, choice, float(row["milliseconds"]), row["source"], where, row.get("checked") is True)
