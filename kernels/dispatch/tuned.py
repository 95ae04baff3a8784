"""Which implementation and configuration run a problem: the tuner's result for this device, else a default.

The tuner writes a table (JSON) for each device. A process reads it once, on a CPU once for each number of threads that
torch computes on, because choices were measured with one number; a call then costs one dictionary lookup. A
tuned problem gets its own result; otherwise the lookup falls back to a bucket, the nearest tuned problem, or the
default of the operation (`kernels.dispatch.table`). `explain` says which one and why. Nothing is tuned or measured
here. torch.compile and torch.export look up once, while they trace, at the sizes of the trace.

Tables are looked for in $NAS_KERNEL_TABLES (a folder or a file), else in the folder of the user, else in the folder
shipped with this package. A lock file in $NAS_KERNEL_LOCK replaces all of them; it says whether a miss is an error or
gets the default. Inside `kernels.dispatch.plain()` no table is used.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.compiler import is_compiling, is_dynamo_compiling

from kernels.dispatch.device import fingerprint
from kernels.dispatch.mode import is_plain
from kernels.dispatch.registry import THREADS, Choice, Operation, Problem, registered
from kernels.dispatch.table import Served, Table, read

log = logging.getLogger(__name__)

TABLES = "NAS_KERNEL_TABLES"
LOCK = "NAS_KERNEL_LOCK"
MOST = 2**16  # the most problems whose choices are remembered, so that new lengths do not fill the memory
SHIPPED = Path(__file__).parent.parent / "tables"
Pairs = tuple[tuple[str, Any], ...]


_tables: dict[tuple[str, int | None], Table] = {}  # by device type and threads; None: a given table, for any number
_served: dict[tuple[Problem, int], Served] = {}  # results of earlier lookups
_ready: dict[tuple, Callable[..., Any]] = {}  # the same, keyed by what a launcher has at hand
_untouched: dict[tuple[str, torch.device, int], bool] = {}
_outside: int | None = None  # the number of threads outside of a call that runs on fewer
_asked: dict[Problem, int] | None = None  # the counts of `asked`, inside such a block


def choose(operation: Operation, problem: Problem) -> Choice:
    """The choice for `problem`; remembered after the first call."""
    if _asked is not None:
        _asked[problem] = _asked.get(problem, 0) + 1
    key = problem, _threads(problem.device)
    served = _served.get(key)
    if served is None:
        if len(_served) >= MOST:
            _served.clear()
        served = _served[key] = table(problem.device).serve(operation, problem)
    return served.choice


def explain(operation: Operation, problem: Problem) -> Served:
    """The choice for `problem`, and why."""
    return table(problem.device).serve(operation, problem)


@contextmanager
def asked() -> Iterator[dict[Problem, int]]:
    """A context manager: the problems that operations look up inside the block, each with a count."""
    global _asked
    outer, _asked = _asked, {}
    try:
        yield _asked
    finally:
        _asked = outer


def untouched(operation: Operation, device: torch.device) -> bool:
    """Whether no problem of `operation` was tuned on the device. If so, a launcher whose default is the same for all
    problems need not describe the problem.
    """
    if _asked is not None or is_plain() or is_compiling():
        return False
    key = operation.name, device, _threads(device.type)
    found = _untouched.get(key)
    if found is None:
        here = table(device.type)
        found = _untouched[key] = here.miss == "default" and operation.name not in here.operations
    return found


def implementation(
    operation: Operation, device: str, dtype: torch.dtype, sizes: tuple[int, ...], flags: tuple, config: Choice | None
) -> Callable[..., Any]:
    """The configured implementation that runs the problem, or the one that `config` names.

    sizes and flags: the values, in the order of the operation. For launchers that are called often: a known problem
    costs one lookup and creates no `Problem`. Raises ValueError if `config` is invalid, and LockedMiss if a lock file
    requires an entry and has none.
    """
    if is_plain():
        return operation.in_plain_torch
    # After a large operation the caches hold nothing of this function, and to ask for other traces takes 6 us.
    if is_dynamo_compiling() or (config is not None and is_compiling()):
        return _traced(operation, device, _dtype_name(dtype), *_named(operation, sizes, flags), config)
    if config is not None:
        return _configured(operation, operation.problem(device, _dtype_name(dtype), sizes, flags), config)
    key = (operation.name, device, dtype, sizes, flags, _threads(device))
    try:
        ready = _ready.get(key)
    except TypeError:  # torch.export without Dynamo: a size is a symbol, which has no hash
        return _traced(operation, device, _dtype_name(dtype), *_named(operation, sizes, flags), None)
    if ready is None or _asked is not None:
        if len(_ready) >= MOST:
            _ready.clear()
        problem = operation.problem(device, _dtype_name(dtype), sizes, flags)
        ready = _ready[key] = bound(operation, choose(operation, problem))
    return ready


def launch(operation: Operation, problem: Problem, config: Choice | None, *args: Any, **kwargs: Any) -> Any:
    """Call the implementation that runs `problem`, or the one that `config` names. Raises as `implementation` does."""
    if is_plain():
        return operation.in_plain_torch(*args, **kwargs)
    if is_compiling():
        traced = _traced(operation, problem.device, problem.dtype, problem.sizes, problem.flags, config)
        return traced(*args, **kwargs)
    if config is not None:
        return _configured(operation, problem, config)(*args, **kwargs)
    return bound(operation, choose(operation, problem))(*args, **kwargs)


def _named(operation: Operation, sizes: tuple[int, ...], flags: tuple) -> tuple[Pairs, Pairs]:
    return tuple(zip(operation.sizes, sizes)), tuple(zip(operation.flags, flags))


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def bound(operation: Operation, choice: Choice) -> Callable[..., Any]:
    """The implementation that `choice` names, with its configuration."""
    chosen = operation.implementations[choice.implementation]
    settings = {**chosen.default, **dict(choice.configuration)}
    if THREADS in settings and THREADS not in chosen.parameters:
        return _on_threads(int(settings.pop(THREADS)), partial(chosen.call, **settings))
    return partial(chosen.call, **settings) if settings else chosen.call


def _on_threads(threads: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` on at most `threads` of torch's threads; a backward pass uses the number set at its own time."""

    def limited(*args: Any, **kwargs: Any) -> Any:
        global _outside
        before = torch.get_num_threads()
        if threads >= before or is_compiling():
            return call(*args, **kwargs)
        outside, _outside = _outside, _threads("cpu")
        torch.set_num_threads(threads)
        try:
            return call(*args, **kwargs)
        finally:
            torch.set_num_threads(before)
            _outside = outside

    return limited


def _threads(device: str) -> int:
    """The number of threads that a lookup is for; 0 where it does not matter."""
    return (_outside or torch.get_num_threads()) if device == "cpu" else 0


def _configured(operation: Operation, problem: Problem, config: Choice) -> Callable[..., Any]:
    operation.check(config, problem)
    return bound(operation, config)


def _traced(
    operation: Operation, device: str, dtype: str, sizes: Pairs, flags: Pairs, config: Choice | None
) -> Callable[..., Any]:
    """The same inside a trace. The lookup must stay out of the trace, or it would guard on the whole table."""
    # A size that depends on data is unknown here: any number will do, because the choice must serve all sizes.
    known = tuple([(name, hint(size)) for name, size in sizes])
    named = None if config is None else (config.implementation, config.configuration)
    return bound(operation, _choice_of_trace(operation.name, device, dtype, known, flags, named))


def hint(size: int) -> int:
    """The value of a size, which may be a symbol, in this trace, without a guard on it; 1 if it depends on data."""
    from torch.fx.experimental import symbolic_shapes

    if hasattr(symbolic_shapes, "optimization_hint"):  # since torch 2.12
        return symbolic_shapes.optimization_hint(size, fallback=1)
    return symbolic_shapes.size_hint(size, fallback=1)  # type: ignore[attr-defined]


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
    """The table for this machine's device of a type; empty if there is none."""
    given, key = _tables.get((device, None)), (device, _threads(device))
    if given is None and key not in _tables:
        _tables[key] = _found(device)
    return _tables[key] if given is None else given


def use(device: str, new: Table | None) -> None:
    """Use the table `new` from now on, or the one on disk if it is None."""
    for key in [each for each in _tables if each[0] == device]:
        del _tables[key]
    if new is not None:
        _tables[device, None] = new
    for known in (_served, _ready, _untouched):
        known.clear()


def device_name(device: str) -> str:
    """The name of a device of this machine, which is the name of its table. Without a number ("cuda") it is the current
    device."""
    kind, _, number = device.partition(":")
    if kind == "cuda" and torch.cuda.is_available():
        return _file_name(torch.cuda.get_device_name(int(number) if number else None))
    return _file_name(f"{kind}-{platform.machine()}-{os.cpu_count()}")


def folders() -> list[Path]:
    """The folders where tables are looked for, in order."""
    own = os.environ.get(TABLES)
    return [Path(own)] if own else [data_folder() / "tables", SHIPPED]


def data_folder() -> Path:
    """Our folder in the user's data directory. Without a home directory it is one that can be neither read nor made."""
    if own := os.environ.get("XDG_DATA_HOME"):
        return Path(own) / "tessera"
    try:
        return Path.home() / ".local" / "share" / "tessera"
    except RuntimeError:
        return Path(os.devnull) / "tessera"


def _found(device: str) -> Table:
    lock = os.environ.get(LOCK)
    if lock:
        return _read(Path(lock), device, lock=True)
    for folder in folders():
        path = folder if folder.suffix == ".json" else folder / f"{device_name(device)}.json"
        with suppress(OSError):  # it may not be looked for
            if path.is_file():
                return _read_or_none(path, device)
    return Table()


def _read_or_none(path: Path, device: str) -> Table:
    """The table in a file that no lock requires. If it is damaged, a log entry says so, and the defaults serve."""
    try:
        return _read(path, device)
    except ValueError as error:
        log.warning("%s. The defaults serve; `nas tune` writes a new one.", error)
        return Table()


def _read(path: Path, device: str, *, lock: bool = False) -> Table:
    """The table in a file; a log entry says if it was measured elsewhere, so that its entries do not serve."""
    if device == "cuda" and not torch.cuda.is_available():
        return read(path, lock=lock)
    here = fingerprint(f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device)
    found = read(path, here, _threads(device) or None, lock=lock)
    if rest := found.elsewhere:
        why = found.difference(rest[0])
        message = "%s: %d entries were measured elsewhere (%s), and serve only when `nas tune verify` has checked them."
        log.warning(message, path, len(rest), why)
    return found


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower()).strip("-")
