"""Keeps the threads of this process on one core of the processor.

A backward pass on a GPU is launched by a thread of its own. If the system moves the two threads between cores, a
training step that waits for its launches takes up to 1.4 times as long, and another time in each run. Other systems
than Linux have no way to do this for running threads: nothing changes there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

THREADS = Path("/proc/self/task")


@contextmanager
def one_core() -> Iterator[None]:
    """Inside the block all threads run on the core that the calling thread is on, if it may use others too.

    Threads that start inside the block may use all cores after it that the calling thread may use.
    """
    before = _allowed() if THREADS.is_dir() else {}
    if len(own := before.get(threading.get_native_id(), set())) < 2:
        yield
        return
    core = _current(own)
    try:
        _allow(lambda thread: {core})
        yield
    finally:
        _allow(lambda thread: before.get(thread, own))


def _current(allowed: set[int]) -> int:
    """The core that the calling thread is on: the last number but 13 of its line in /proc (proc_pid_stat(5))."""
    fields = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()
    core = int(fields[36])
    return core if core in allowed else min(allowed)


def _allowed() -> dict[int, set[int]]:
    """The cores that each thread may use; without those that have just ended."""
    found = {}
    for thread in _threads():
        with suppress(OSError):
            found[thread] = os.sched_getaffinity(thread)
    return found


def _allow(cores: Callable[[int], set[int]]) -> None:
    """Let each thread use `cores` of it, also those that others start meanwhile."""
    done: set[int] = set()
    while new := _threads() - done:
        for thread in new:
            with suppress(OSError):
                os.sched_setaffinity(thread, cores(thread))
        done |= new


def _threads() -> set[int]:
    return {int(each.name) for each in THREADS.iterdir()}
