"""Pauses Python's garbage collector while a file, or the log of a study, is read.

Reading makes hundreds of thousands of objects and hardly any garbage. Meanwhile the collector would repeatedly scan all
objects of the process, including those of PyTorch, which takes a quarter of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """A context, or a decorator, in which the collector is paused."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
