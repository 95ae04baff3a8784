"""Pauses Python's garbage collector while a file, or the log of a study, is read.

Reading makes hundreds of thousands of objects and hardly any garbage. The collector walks over all objects of the
process again and again meanwhile, those of PyTorch too, which is a quarter of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """Within, the collector is paused. Also a decorator."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
