"""Keeps Python's garbage collector out of measurements."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Excluded:
    """Who excludes objects from collection, as far as known. Python walks through all of them to count them."""

    by_us = by_program = False


def spare_existing() -> Callable[[], None]:
    """Exclude all existing objects from garbage collection, so that the collection before each measurement is short.

    Returns the function that undoes it. If the program has excluded objects itself, nothing is changed from then on,
    because there is no way to exclude more and to undo that alone.
    """
    gc.collect()
    if not _Excluded.by_us:
        _Excluded.by_program = _Excluded.by_program or gc.get_freeze_count() > 0
    if _Excluded.by_us or _Excluded.by_program:
        return lambda: None
    gc.freeze()
    _Excluded.by_us = True
    return _include_again


def _include_again() -> None:
    gc.unfreeze()
    _Excluded.by_us = False


@contextmanager
def little_garbage() -> Iterator[None]:
    """Inside the block, collections are short: `spare_existing`."""
    undo = spare_existing()
    try:
        yield
    finally:
        undo()


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect garbage, then none inside the block, so that it is not timed with a call."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
