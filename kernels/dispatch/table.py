"""A table of tuned problems, and its file: what serves a problem, and why.

Exactly what was tuned comes first. Else a bucket: the choice that serves a sweep of problems within a stated loss,
where the problem lies among them, or no size differs by more than `BOUND` from one of them. Else the nearest problem
that was tuned, within the same bound; else the operation's default. Operation, dtype and flags must be the same. What a
compiler builds for each shape serves what was tuned and nothing near it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.dispatch.registry import Choice, Operation, Problem
from kernels.dispatch.sources import valid

BOUND = 2.0  # a size may be so many times larger or smaller than that of the problem which was tuned
MISSES = ("default", "error")


@dataclass(frozen=True)
class Served:
    """A choice, and why: `exact`, `bucket` or `near` (with the problem that was tuned), `default`, `locked`.

    loss: how much slower than the best the bucket's choice was at worst (0.03: three per cent).
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
    source: str  # of the implementation when it was measured


@dataclass(frozen=True)
class Bucket:
    """The problems that one choice serves, each slower than its best by at most `loss` (0.03: three per cent).

    They differ in nothing but their sizes. source: of the implementation when it was measured.
    """

    choice: Choice
    problems: tuple[Problem, ...]
    loss: float
    source: str = ""

    def near(self, problem: Problem) -> tuple[float, Problem]:
        """How far `problem` is from the nearest that the bucket serves, and which that is."""
        return min(((distance(each, problem), each) for each in self.problems), key=lambda pair: pair[0])

    def surrounds(self, problem: Problem) -> bool:
        """Whether every size of `problem` lies between two of those that the bucket serves."""
        columns = zip(*(each.sizes for each in self.problems), strict=True)
        pairs = (
            (asked, [value for _, value in column]) for (_, asked), column in zip(problem.sizes, columns, strict=True)
        )
        return all(min(values) <= asked <= max(values) for asked, values in pairs)


class LockedMiss(LookupError):
    """A problem that the lock file does not hold, where it says that a miss is an error."""


class Table:
    """The tuned problems of one device, and the buckets that serve what lies between them.

    miss: `default`, or `error` for a lock file that allows nothing else.
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
        """What serves `problem`, and why. Raises LockedMiss."""
        entry = self.entries.get(problem)
        fault = None if entry is None else _fault(operation, entry, problem)
        if entry is not None and fault is None:
            return Served(entry.choice, "locked" if self.locked else "exact", problem, entry.milliseconds)
        found = self._by_bucket(operation, problem) or self._near(operation, problem)
        if found is not None:
            return found
        if self.miss == "error":
            raise LockedMiss(
                f"{self.origin} holds nothing that serves {problem} ({fault or self.missed(operation, problem)}), and "
                "says that a miss is an error: tune it and lock again, or let a miss be served by the default "
                "(nas tune lock FILE --miss default)."
            )
        return Served(operation.default_choice(problem), "default")

    def missed(self, operation: Operation, problem: Problem) -> str:
        """Why nothing of the table serves `problem`."""
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
            return f"the nearest that was tuned, {sizes}, is {apart:.3g} times as large or small"
        return _fault(operation, nearest, problem) or "its own entry cannot serve it"

    def _by_bucket(self, operation: Operation, problem: Problem) -> Served | None:
        """By the bucket whose problems are nearest: around `problem`, or within the bound."""
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
    """Why the choice is not what was measured any more, or cannot run the problem; None where it can."""
    implementation = operation.implementations.get(entry.choice.implementation)
    if implementation is not None and not valid(entry.source, implementation):
        return f"{operation.name} has changed since {entry.choice.implementation} was measured"
    if implementation is not None and implementation.builds and problem != entry.problem:
        return f"{entry.choice.implementation} is built for each shape anew, which takes seconds"
    try:
        operation.check(entry.choice, problem)
    except ValueError as error:
        return str(error)
    return None


def kind(problem: Problem) -> tuple:
    """What problems have in common that differ in nothing but their sizes."""
    names = tuple(name for name, _ in problem.sizes)
    return problem.operation, problem.device, problem.dtype, problem.flags, names


def distance(one: Problem, other: Problem) -> float:
    """The largest logarithm of a ratio of sizes."""
    pairs = zip(one.sizes, other.sizes, strict=True)
    return max((abs(math.log(max(a, 1) / max(b, 1))) for (_, a), (_, b) in pairs), default=0.0)


def read(path: Path) -> Table:
    """The table in a file. Raises ValueError naming the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("sha256") not in (None, digest(data)):
            raise ValueError("its entries are not those that were locked; lock again instead of changing it")
        buckets = [_bucket(row) for row in data.get("buckets", [])]
        return Table(map(_entry, data["entries"]), data.get("miss", "default"), str(path), buckets=buckets)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no table of tuned kernels: {type(error).__name__}: {error}") from error


def written(entries: Iterable[Entry], buckets: Iterable[Bucket] = (), **about: Any) -> str:
    """The text of a table file; `about` says what device and versions it is of."""
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
    if "miss" in about:  # a lock file: the same winners everywhere
        about["sha256"] = digest(data)
    return json.dumps({**about, **data}, indent=1) + "\n"


def digest(data: Mapping[str, Any]) -> str:
    """A hash of what a lock file serves."""
    text = json.dumps([data["entries"], data.get("buckets", [])], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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
    choice = Choice.of(row["implementation"], row["configuration"])
    return Entry(_problem(row, row["sizes"]), choice, row["milliseconds"], row["source"])


def _bucket(row: Mapping[str, Any]) -> Bucket:
    problems = tuple(_problem(row, sizes) for sizes in row["sizes"])
    return Bucket(Choice.of(row["implementation"], row["configuration"]), problems, row["loss"], row["source"])
