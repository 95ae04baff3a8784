"""Python's garbage collector in a command. One that only reads ends before there is garbage worth a scan."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from searchspace.language.collecting import collected_later


@contextmanager
def uncollected() -> Iterator[None]:
    """A context, or a decorator, without the collector. What is made in it is never scanned, not even afterwards: the
    scan when the collector resumes would take a twelfth of the CPU of `nas report`. Only for what lasts until the
    process ends.
    """
    with collected_later():
        try:
            yield
        finally:
            gc.freeze()
