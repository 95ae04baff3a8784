"""Run every operation as plain PyTorch: no operator of ours, no Triton, no compiler, no autograd function.

For exports that must run without this package:

    with plain():
        program = torch.export.export(model, inputs)

The mode belongs to the current thread (and the current asyncio task). It is read when an operation is called, and
inside a trace when the operation is traced. A model of `torch.compile` is compiled again on its first call inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

_here: ContextVar[bool] = ContextVar("plain", default=False)
_lock = Lock()
_blocks = 0  # open blocks of all threads
_anywhere = False  # whether there are any: a global that is cheap to read, and that torch.compile guards on


@contextmanager
def plain() -> Iterator[None]:
    """A context manager, or a decorator, inside which every operation runs as plain PyTorch.

    A configuration given at a call (`config=`) and tuned tables have no effect. Blocks may be nested.
    """
    token = _here.set(True)
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _here.reset(token)


def is_plain() -> bool:
    """True inside `plain()`."""
    return _anywhere and _of_this_thread()


def _of_this_thread() -> bool:
    return _here.get()


# What `torch.compiler.assume_constant_result` sets; to call that here would load the compiler with this module.
_of_this_thread._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _count(change: int) -> None:
    global _blocks, _anywhere
    with _lock:
        _blocks += change
        _anywhere = _blocks > 0
