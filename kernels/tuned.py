"""Which implementation and configuration serve a problem: what the tuner found on this device, else a default.

The tuner writes a table, JSON, a device; a process reads it once, and a call costs a look-up in a dictionary. A problem
that was tuned is served exactly; else the nearest of the same operation, dtype and flags, if no size differs by more
than `BOUND`; else the operation's default. `explain` says which and why. Nothing is ever tuned or measured here.

Tables are looked for in $NAS_KERNEL_TABLES (a folder or a file), else in the user's own folder, else in the one shipped
with this package. With a lock file in $NAS_KERNEL_LOCK nothing else is served, and a miss is an error or the default as
that file says.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernels.registry import Choice, Operation, Problem

BOUND = 2.0  # a size may be so many times larger or smaller than that of the problem which was tuned
TABLES = "NAS_KERNEL_TABLES"
LOCK = "NAS_KERNEL_LOCK"
SHIPPED = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Served:
    """A choice, and why: `exact`, `near` (with the problem that was tuned), `default`, `locked`."""

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
    source: str  # of the implementation when it was measured


class LockedMiss(LookupError):
    """A problem that the lock file does not hold, where it says that a miss is an error."""


class Table:
    """The tuned problems of one device. `miss`: `default`, or `error` for a lock file that allows nothing else."""

    def __init__(self, entries: Iterable[Entry] = (), miss: str = "default", origin: str = "") -> None:
        self.entries = {entry.problem: entry for entry in entries}
        self.miss, self.origin = miss, origin
        self._alike: dict[tuple, list[Entry]] = {}
        for entry in self.entries.values():
            self._alike.setdefault(_kind(entry.problem), []).append(entry)

    def serve(self, operation: Operation, problem: Problem) -> Served:
        """What serves `problem`, and why. Raises LockedMiss."""
        entry = self.entries.get(problem)
        if entry is not None and self._valid(operation, entry, problem):
            return Served(entry.choice, "locked" if self.miss == "error" else "exact", problem, entry.milliseconds)
        alike = self._alike.get(_kind(problem), [])
        for each in sorted(alike, key=lambda each: distance(each.problem, problem)):
            if distance(each.problem, problem) <= math.log(BOUND) and self._valid(operation, each, problem):
                return Served(each.choice, "near", each.problem, each.milliseconds)
        if self.miss == "error":
            raise LockedMiss(f"{self.origin} holds nothing for {problem}, and says that a miss is an error.")
        return Served(operation.default_choice(problem), "default")

    def _valid(self, operation: Operation, entry: Entry, problem: Problem) -> bool:
        """Whether the choice is still what was measured, and can run the problem."""
        implementation = operation.implementations.get(entry.choice.implementation)
        if implementation is None or implementation.source != entry.source:
            return False
        try:
            operation.check(entry.choice, problem)
        except ValueError:
            return False
        return True


def _kind(problem: Problem) -> tuple:
    names = tuple(name for name, _ in problem.sizes)
    return problem.operation, problem.device, problem.dtype, problem.flags, names


def distance(one: Problem, other: Problem) -> float:
    """The largest logarithm of a ratio of sizes."""
    pairs = zip(one.sizes, other.sizes, strict=True)
    return max((abs(math.log(max(a, 1) / max(b, 1))) for (_, a), (_, b) in pairs), default=0.0)


_tables: dict[str, Table] = {}  # by device type
_served: dict[Problem, Served] = {}  # what was asked for before


def choose(operation: Operation, problem: Problem) -> Choice:
    """The choice for `problem`: a look-up after the first time."""
    served = _served.get(problem)
    if served is None:
        served = _served[problem] = table(problem.device).serve(operation, problem)
    return served.choice


def explain(operation: Operation, problem: Problem) -> Served:
    """What serves `problem`, and why."""
    return table(problem.device).serve(operation, problem)


def launch(operation: Operation, problem: Problem, config: Choice | None, *args: Any, **kwargs: Any) -> Any:
    """Call the implementation that serves `problem`, or the one that `config` names."""
    if config is not None:
        operation.check(config, problem)
        choice = config
    elif torch.compiler.is_compiling():
        choice = _traced(operation, problem.device, problem.dtype, _expected(problem.sizes), problem.flags)
    else:
        choice = choose(operation, problem)
    implementation = operation.implementations[choice.implementation]
    return implementation.call(*args, **kwargs, **{**implementation.default, **dict(choice.configuration)})


def _traced(operation: Operation, device: str, dtype: str, sizes: tuple, flags: tuple) -> Choice:
    return choose(operation, Problem(operation.name, device, dtype, sizes, flags))


# What torch.compiler.assume_constant_result sets, which would load the compiler now: a trace calls it, and keeps what
# it returned instead of following it into files and dictionaries.
_traced._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _expected(sizes: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Plain numbers: for a size that a traced graph leaves open, the one it is traced with."""
    from torch.fx.experimental.symbolic_shapes import guarding_hint_or_throw

    return tuple([(name, guarding_hint_or_throw(size)) for name, size in sizes])


def table(device: str) -> Table:
    """The table of this machine's device of that type; an empty one where there is none."""
    if device not in _tables:
        _tables[device] = _found(device)
    return _tables[device]


def use(device: str, new: Table | None) -> None:
    """Serve from `new` from now on, or from what is on disk when it is None."""
    _tables.pop(device, None)
    if new is not None:
        _tables[device] = new
    _served.clear()


def device_name(device: str) -> str:
    """The name of this machine's device of that type: what its table is called."""
    if device == "cuda" and torch.cuda.is_available():
        return _file_name(torch.cuda.get_device_name())
    return _file_name(f"{device}-{platform.machine()}-{os.cpu_count()}")


def folders() -> list[Path]:
    """Where tables are looked for, in order."""
    own = os.environ.get(TABLES)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return [Path(own)] if own else [data / "tessera" / "tables", SHIPPED]


def read(path: Path) -> Table:
    """The table in a file. Raises ValueError naming the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Table(map(_entry, data["entries"]), data.get("miss", "default"), str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no table of tuned kernels: {type(error).__name__}: {error}") from error


def written(entries: Iterable[Entry], **about: Any) -> str:
    """The text of a table file; `about` says what device and versions it is of."""
    rows = [
        {
            "operation": entry.problem.operation,
            "device": entry.problem.device,
            "dtype": entry.problem.dtype,
            "sizes": dict(entry.problem.sizes),
            "flags": dict(entry.problem.flags),
            "implementation": entry.choice.implementation,
            "configuration": dict(entry.choice.configuration),
            "milliseconds": entry.milliseconds,
            "source": entry.source,
        }
        for entry in entries
    ]
    return json.dumps({**about, "entries": rows}, indent=1) + "\n"


def _entry(row: Mapping[str, Any]) -> Entry:
    problem = Problem(
        row["operation"], row["device"], row["dtype"], tuple(row["sizes"].items()), tuple(row["flags"].items())
    )
    return Entry(problem, Choice.of(row["implementation"], row["configuration"]), row["milliseconds"], row["source"])


def _found(device: str) -> Table:
    lock = os.environ.get(LOCK)
    if lock:
        return read(Path(lock))
    for folder in folders():
        path = folder if folder.suffix == ".json" else folder / f"{device_name(device)}.json"
        if path.is_file():
            return read(path)
    return Table()


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower()).strip("-")
