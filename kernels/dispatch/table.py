"""A table of tuned problems and its file: which choice serves a problem, and why.

The lookup tries in this order: the same problem; a bucket; the nearest tuned problem; the default of the operation. A
bucket is a choice that serves a set of problems within a stated loss. It is used if the problem is between them, or if
no size differs from one of them by a factor of more than `BOUND`. The nearest problem must be within the same bound.
Operation, dtype and flags must be equal. An implementation that is compiled for each shape serves only shapes that were
tuned.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.dispatch import limits
from kernels.dispatch.registry import Choice, Operation, Problem
from kernels.dispatch.sources import valid

BOUND = 2.0  # the largest factor between a size and that of the tuned problem
MISSES = ("default", "error")
_ROW = dict.fromkeys(("operation", "device", "dtype", "implementation", "source"), limits.text)
_ROW |= dict.fromkeys(("flags", "configuration"), limits.scalars)


@dataclass(frozen=True)
class Served:
    """A choice and why it was made: `exact`, `locked`, `bucket` or `near` (with the tuned problem), or `default`.

    loss: how much slower than the best the choice of the bucket is at worst (0.03: three per cent).
    """

    choice: Choice
    why: str
    tuned: Problem | None = None
    milliseconds: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Entry:
    """One tuned problem of a table."""

    problem: Problem
    choice: Choice
    milliseconds: float
    source: str  # the hash of the implementation's code when it was measured


@dataclass(frozen=True)
class Bucket:
    """The problems that one choice serves, each slower than its best by at most `loss` (0.03: three per cent).

    The problems differ only in their sizes. source: the hash of the implementation's code when it was measured.
    """

    choice: Choice
    problems: tuple[Problem, ...]
    loss: float
    source: str = ""

    def near(self, problem: Problem) -> tuple[float, Problem]:
        """(distance to the nearest problem of the bucket, that problem)."""
        return min(((distance(each, problem), each) for each in self.problems), key=lambda pair: pair[0])

    def surrounds(self, problem: Problem) -> bool:
        """Whether each size of `problem` is between two sizes of the bucket's problems."""
        columns = zip(*(each.sizes for each in self.problems), strict=True)
        pairs = (
            (asked, [value for _, value in column]) for (_, asked), column in zip(problem.sizes, columns, strict=True)
        )
        return all(min(values) <= asked <= max(values) for asked, values in pairs)


class LockedMiss(LookupError):
    """A lock file has no entry for a problem, and it says that a miss is an error."""


class Table:
    """The tuned problems of one device, and the buckets for problems between them.

    miss: `default`, or `error` in a lock file that must serve everything. Raises ValueError if it is anything else.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        miss: str = "default",
        origin: str = "",
        locked: bool = False,
        buckets: Iterable[Bucket] = (),
    ) -> None:
        if miss not in MISSES:
            raise ValueError(f"miss must be one of {', '.join(MISSES)}, but got {miss!r}.")
        self.entries = {entry.problem: entry for entry in entries}
        self.miss, self.origin, self.locked = miss, origin, locked
        self._alike: dict[tuple, list[Entry]] = {}
        for entry in self.entries.values():
            self._alike.setdefault(kind(entry.problem), []).append(entry)
        self.buckets = [bucket for bucket in buckets if bucket.problems]
        self._buckets: dict[tuple, list[Bucket]] = {}
        for bucket in self.buckets:
            self._buckets.setdefault(kind(bucket.problems[0]), []).append(bucket)

    def serve(self, operation: Operation, problem: Problem) -> Served:
        """What serves `problem`, and why. Raises LockedMiss if nothing does and a miss is an error."""
        entry = self.entries.get(problem)
        fault = None if entry is None else _fault(operation, entry, problem)
        if entry is not None and fault is None:
            return Served(entry.choice, "locked" if self.locked else "exact", problem, entry.milliseconds)
        found = self._by_bucket(operation, problem) or self._near(operation, problem)
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
        alike = self._alike.get(kind(problem), [])
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

    def _by_bucket(self, operation: Operation, problem: Problem) -> Served | None:
        """The bucket with the nearest problems, if `problem` is between them or within the bound."""
        near = [(*bucket.near(problem), bucket) for bucket in self._buckets.get(kind(problem), [])]
        for apart, tuned, bucket in sorted(near, key=lambda each: each[0]):
            if apart <= math.log(BOUND) or bucket.surrounds(problem):
                entry = Entry(tuned, bucket.choice, 0.0, bucket.source)
                if _fault(operation, entry, problem) is None:
                    return Served(bucket.choice, "bucket", tuned, loss=bucket.loss)
        return None

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
    if implementation is not None and not valid(entry.source, implementation):
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


def read(path: Path) -> Table:
    """The table in a file. Raises ValueError, naming the file, if it cannot be read."""
    try:
        data = limits.load(path)
        limits.check(data, {"entries": _listed}, "the file")
        if data.get("sha256") not in (None, digest(data)):
            raise ValueError("its entries were changed after it was locked; lock again instead of editing it")
        if _listed(data.get("buckets", [])):
            raise ValueError(f"'buckets' must be a list, but is {limits.short(data['buckets'])}")
        buckets = [_bucket(row) for row in data.get("buckets", [])]
        return Table(map(_entry, data["entries"]), data.get("miss", "default"), str(path), buckets=buckets)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = limits.short(str(error)) if isinstance(error, KeyError) else str(error)[:500]
        raise ValueError(f"{path} is not a table of tuned kernels: {type(error).__name__}: {why}") from error


def written(entries: Iterable[Entry], buckets: Iterable[Bucket] = (), **about: Any) -> str:
    """The text of a table file; `about` describes its device and versions."""
    data: dict[str, Any] = {
        "entries": [
            {
                **_named(entry.problem),
                "sizes": dict(entry.problem.sizes),
                **_chosen(entry.choice),
                "milliseconds": entry.milliseconds,
                "source": entry.source,
            }
            for entry in entries
        ],
        "buckets": [
            {
                **_named(bucket.problems[0]),
                "sizes": [dict(problem.sizes) for problem in bucket.problems],
                **_chosen(bucket.choice),
                "loss": bucket.loss,
                "source": bucket.source,
            }
            for bucket in buckets
        ],
    }
    if "miss" in about:  # a lock file, which serves the same choices everywhere
        about["sha256"] = digest(data)
    return json.dumps({**about, **data}, indent=1) + "\n"


def digest(data: Mapping[str, Any]) -> str:
    """A hash of the choices of a lock file."""
    text = json.dumps([data["entries"], data.get("buckets", [])], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _listed(value: Any) -> str | None:
    return None if isinstance(value, list) else "a list"


def _named(problem: Problem) -> dict[str, Any]:
    return {
        "operation": problem.operation,
        "device": problem.device,
        "dtype": problem.dtype,
        "flags": dict(problem.flags),
    }


def _chosen(choice: Choice) -> dict[str, Any]:
    return {"implementation": choice.implementation, "configuration": dict(choice.configuration)}


def _problem(row: Mapping[str, Any], sizes: Mapping[str, int]) -> Problem:
    return Problem(row["operation"], row["device"], row["dtype"], tuple(sizes.items()), tuple(row["flags"].items()))


def _entry(row: Mapping[str, Any]) -> Entry:
    limits.check(row, _ROW | {"sizes": limits.sizes, "milliseconds": limits.amount}, "an entry")
    choice = Choice.of(row["implementation"], row["configuration"])
    return Entry(_problem(row, row["sizes"]), choice, row["milliseconds"], row["source"])


def _bucket(row: Mapping[str, Any]) -> Bucket:
    limits.check(row, _ROW | {"sizes": limits.all_sizes, "loss": limits.amount}, "a bucket")
    problems = tuple(_problem(row, sizes) for sizes in row["sizes"])
    return Bucket(Choice.of(row["implementation"], row["configuration"]), problems, row["loss"], row["source"])
