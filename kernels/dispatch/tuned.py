"""Which implementation and configuration serve a problem: what the tuner found on this device, else a default.

The tuner writes a table, JSON, a device; a process reads it once, and a call costs a look-up in a dictionary. A problem
that was tuned is served exactly; else by its bucket, or by the nearest that was tuned (`kernels.dispatch.table`);
else by the operation's default. `explain` says which and why. Nothing is ever tuned or measured here.
A trace of torch.compile or torch.export looks up once, while it traces, at the sizes that it traces with.

Tables are looked for in $NAS_KERNEL_TABLES (a folder or a file), else in the user's own folder, else in the one shipped
with this package. With a lock file in $NAS_KERNEL_LOCK nothing else is served, and a miss is an error or the default as
that file says.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels.dispatch.mode import is_plain
from kernels.dispatch.registry import THREADS, Choice, Operation, Problem, registered
from kernels.dispatch.table import Served, Table, read

TABLES = "NAS_KERNEL_TABLES"
LOCK = "NAS_KERNEL_LOCK"
MOST = 2**16  # problems whose choices are remembered; a run of ever new lengths must not fill the memory
SHIPPED = Path(__file__).parent.parent / "tables"
Pairs = tuple[tuple[str, Any], ...]


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
    if _asked is not None or is_plain() or torch.compiler.is_compiling():
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
    if is_plain():
        return operation.in_plain_torch
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
        ready = _ready[key] = bound(operation, choose(operation, problem))
    return ready


def launch(operation: Operation, problem: Problem, config: Choice | None, *args: Any, **kwargs: Any) -> Any:
    """Call the implementation that serves `problem`, or the one that `config` names."""
    if is_plain():
        return operation.in_plain_torch(*args, **kwargs)
    if torch.compiler.is_compiling():
        traced = _traced(operation, problem.device, problem.dtype, problem.sizes, problem.flags, config)
        return traced(*args, **kwargs)
    if config is not None:
        return _configured(operation, problem, config)(*args, **kwargs)
    return bound(operation, choose(operation, problem))(*args, **kwargs)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def bound(operation: Operation, choice: Choice) -> Callable[..., Any]:
    """The implementation that `choice` names, with its configuration."""
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
    return bound(operation, config)


def _traced(
    operation: Operation, device: str, dtype: str, sizes: Pairs, flags: Pairs, config: Choice | None
) -> Callable[..., Any]:
    """The same inside a trace, which must not look into the tables itself: it would guard on all they hold."""
    from torch.fx.experimental.symbolic_shapes import optimization_hint

    # A size that depends on the data is unknown even here: any will do, for what serves must serve all.
    known = tuple([(name, optimization_hint(size, fallback=1)) for name, size in sizes])
    named = None if config is None else (config.implementation, config.configuration)
    return bound(operation, _choice_of_trace(operation.name, device, dtype, known, flags, named))


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
