"""Which implementation and configuration serve a problem: what the tuner found on this device, else a default.

The tuner writes a table, JSON, a device; a process reads it once, and a call costs a look-up in a dictionary. A problem
that was tuned is served exactly; else the nearest of the same operation, dtype and flags, if no size differs by more
than `BOUND`; else the operation's default. `explain` says which and why. Nothing is ever tuned or measured here.
A trace of torch.compile or torch.export looks up once, while it traces, at the sizes that it traces with.

Tables are looked for in $NAS_KERNEL_TABLES (a folder or a file), else in the user's own folder, else in the one shipped
with this package. With a lock file in $NAS_KERNEL_LOCK nothing else is served, and a miss is an error or the default as
that file says.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels.registry import THREADS, Choice, Operation, Problem, registered

BOUND = 2.0  # a size may be so many times larger or smaller than that of the problem which was tuned
TABLES = "NAS_KERNEL_TABLES"
LOCK = "NAS_KERNEL_LOCK"
MISSES = ("default", "error")
MOST = 2**16  # problems whose choices are remembered; a run of ever new lengths must not fill the memory
SHIPPED = Path(__file__).parent / "tables"
Pairs = tuple[tuple[str, Any], ...]


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

    def __init__(
        self, entries: Iterable[Entry] = (), miss: str = "default", origin: str = "", locked: bool = False
    ) -> None:
        if miss not in MISSES:
            raise ValueError(f"miss must be one of {', '.join(MISSES)}, but got {miss!r}.")
        self.entries = {entry.problem: entry for entry in entries}
        self.miss, self.origin, self.locked = miss, origin, locked
        self._alike: dict[tuple, list[Entry]] = {}
        for entry in self.entries.values():
            self._alike.setdefault(_kind(entry.problem), []).append(entry)

    def serve(self, operation: Operation, problem: Problem) -> Served:
        """What serves `problem`, and why. Raises LockedMiss."""
        entry = self.entries.get(problem)
        fault = None if entry is None else _fault(operation, entry, problem)
        if entry is not None and fault is None:
            return Served(entry.choice, "locked" if self.locked else "exact", problem, entry.milliseconds)
        alike = ((distance(each.problem, problem), each) for each in self._alike.get(_kind(problem), []))
        near = sorted((pair for pair in alike if pair[0] <= math.log(BOUND)), key=lambda pair: pair[0])
        for _, each in near:
            if _fault(operation, each, problem) is None:
                return Served(each.choice, "near", each.problem, each.milliseconds)
        if self.miss == "error":
            raise LockedMiss(
                f"{self.origin} holds nothing that serves {problem}{f' ({fault})' if fault else ''}, and says that a "
                "miss is an error: tune it and lock again, or let a miss be served by the default."
            )
        return Served(operation.default_choice(problem), "default")


def _fault(operation: Operation, entry: Entry, problem: Problem) -> str | None:
    """Why the choice is not what was measured any more, or cannot run the problem; None where it can."""
    implementation = operation.implementations.get(entry.choice.implementation)
    if implementation is not None and implementation.source != entry.source:
        return f"{operation.name} has changed since {entry.choice.implementation} was measured"
    try:
        operation.check(entry.choice, problem)
    except ValueError as error:
        return str(error)
    return None


def _kind(problem: Problem) -> tuple:
    names = tuple(name for name, _ in problem.sizes)
    return problem.operation, problem.device, problem.dtype, problem.flags, names


def distance(one: Problem, other: Problem) -> float:
    """The largest logarithm of a ratio of sizes."""
    pairs = zip(one.sizes, other.sizes, strict=True)
    return max((abs(math.log(max(a, 1) / max(b, 1))) for (_, a), (_, b) in pairs), default=0.0)


_tables: dict[str, Table] = {}  # by device type
_served: dict[Problem, Served] = {}  # what was asked for before
_ready: dict[tuple, Callable[..., Any]] = {}  # the same, by what a launcher has at hand
_untouched: dict[tuple[str, torch.device], bool] = {}
_asked: dict[Problem, int] | None = None  # inside `asked`


def choose(operation: Operation, problem: Problem) -> Choice:
    """The choice for `problem`: a look-up after the first time."""
    if _asked is not None:
        _asked[problem] = _asked.get(problem, 0) + 1
    served = _served.get(problem)
    if served is None:
        if len(_served) >= MOST:
            _served.clear()
        served = _served[problem] = table(problem.device).serve(operation, problem)
    return served.choice


def explain(operation: Operation, problem: Problem) -> Served:
    """What serves `problem`, and why."""
    return table(problem.device).serve(operation, problem)


@contextmanager
def asked() -> Iterator[dict[Problem, int]]:
    """The problems that the operations called inside the block ask for, each with how often."""
    global _asked
    outer, _asked = _asked, {}
    try:
        yield _asked
    finally:
        _asked = outer


def untouched(operation: Operation, device: torch.device) -> bool:
    """Whether nothing of `operation` was tuned there: where its default is one for all problems, none need be made."""
    if _asked is not None or torch.compiler.is_compiling():
        return False
    found = _untouched.get((operation.name, device))
    if found is None:
        here = table(device.type)
        found = here.miss == "default" and not any(known.operation == operation.name for known in here.entries)
        _untouched[operation.name, device] = found
    return found


def implementation(
    operation: Operation, device: str, dtype: torch.dtype, sizes: tuple[int, ...], flags: tuple, config: Choice | None
) -> Callable[..., Any]:
    """The implementation, configured, that serves the problem, or the one that `config` names.

    sizes and flags: the values, in the operation's order. This is `launch` for launchers that are called often: a known
    problem costs one look-up and makes no `Problem`.
    """
    if torch.compiler.is_compiling():
        named = tuple(zip(operation.sizes, sizes)), tuple(zip(operation.flags, flags))
        return _traced(operation, device, _dtype_name(dtype), *named, config)
    if config is not None:
        return _configured(operation, operation.problem(device, _dtype_name(dtype), sizes, flags), config)
    key = (operation.name, device, dtype, sizes, flags)
    ready = _ready.get(key)
    if ready is None or _asked is not None:
        if len(_ready) >= MOST:
            _ready.clear()
        problem = operation.problem(device, _dtype_name(dtype), sizes, flags)
        ready = _ready[key] = _bound(operation, choose(operation, problem))
    return ready


def launch(operation: Operation, problem: Problem, config: Choice | None, *args: Any, **kwargs: Any) -> Any:
    """Call the implementation that serves `problem`, or the one that `config` names."""
    if torch.compiler.is_compiling():
        traced = _traced(operation, problem.device, problem.dtype, problem.sizes, problem.flags, config)
        return traced(*args, **kwargs)
    if config is not None:
        return _configured(operation, problem, config)(*args, **kwargs)
    return _bound(operation, choose(operation, problem))(*args, **kwargs)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bound(operation: Operation, choice: Choice) -> Callable[..., Any]:
    chosen = operation.implementations[choice.implementation]
    settings = {**chosen.default, **dict(choice.configuration)}
    if THREADS in settings and THREADS not in chosen.parameters:
        return _on_threads(int(settings.pop(THREADS)), partial(chosen.call, **settings))
    return partial(chosen.call, **settings)


def _on_threads(threads: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` on at most so many of torch's threads; a backward pass runs on those that there are then."""

    def limited(*args: Any, **kwargs: Any) -> Any:
        before = torch.get_num_threads()
        if threads >= before or torch.compiler.is_compiling():
            return call(*args, **kwargs)
        torch.set_num_threads(threads)
        try:
            return call(*args, **kwargs)
        finally:
            torch.set_num_threads(before)

    return limited


def _configured(operation: Operation, problem: Problem, config: Choice) -> Callable[..., Any]:
    operation.check(config, problem)
    return _bound(operation, config)


def _traced(
    operation: Operation, device: str, dtype: str, sizes: Pairs, flags: Pairs, config: Choice | None
) -> Callable[..., Any]:
    """The same inside a trace, which must not look into the tables itself: it would guard on all they hold."""
    from torch.fx.experimental.symbolic_shapes import optimization_hint

    # A size that depends on the data is unknown even here: any will do, for what serves must serve all.
    known = tuple([(name, optimization_hint(size, fallback=1)) for name, size in sizes])
    named = None if config is None else (config.implementation, config.configuration)
    return _bound(operation, _choice_of_trace(operation.name, device, dtype, known, flags, named))


def _choice_of_trace(name: str, device: str, dtype: str, sizes: Pairs, flags: Pairs, named: tuple | None) -> Choice:
    operation = registered(name)
    problem = Problem(name, device, dtype, sizes, flags)
    if named is not None:
        operation.check(Choice(*named), problem)
        return Choice(*named)
    return choose(operation, problem)


# What `torch.compiler.assume_constant_result` sets; calling that would load the compiler with this module.
_choice_of_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]


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
    for known in (_served, _ready, _untouched):
        known.clear()


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
        if data.get("sha256") not in (None, digest(data["entries"])):
            raise ValueError("its entries are not those that were locked; lock again instead of changing it")
        return Table(map(_entry, data["entries"]), data.get("miss", "default"), str(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
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
    if "miss" in about:  # a lock file: the same winners everywhere
        about["sha256"] = digest(rows)
    return json.dumps({**about, "entries": rows}, indent=1) + "\n"


def digest(rows: list[dict[str, Any]]) -> str:
    """A hash of the entries of a lock file."""
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _entry(row: Mapping[str, Any]) -> Entry:
    problem = Problem(
        row["operation"], row["device"], row["dtype"], tuple(row["sizes"].items()), tuple(row["flags"].items())
    )
    return Entry(problem, Choice.of(row["implementation"], row["configuration"]), row["milliseconds"], row["source"])


def _found(device: str) -> Table:
    lock = os.environ.get(LOCK)
    if lock:
        found = read(Path(lock))
        found.locked = True
        return found
    for folder in folders():
        path = folder if folder.suffix == ".json" else folder / f"{device_name(device)}.json"
        if path.is_file():
            return read(path)
    return Table()


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower()).strip("-")
