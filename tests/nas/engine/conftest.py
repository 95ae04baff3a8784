"""A runner that behaves like a cluster, whose units come back in any order; and processes that are killed."""

import os
import random
import sys
import warnings
from collections.abc import Callable

import pytest


class Disorderly:
    """Three units at once, which come back in any order: a cluster, as the search sees it."""

    workers = 3
    capacity = 4
    isolates = False

    def __init__(self, unit, seed=0):
        self.unit, self.luck, self.running = unit, random.Random(seed), []

    def submit(self, work):
        self.running.append(work)

    def wait(self, timeout):
        return [self.unit(self.running.pop(self.luck.randrange(len(self.running))))] if self.running else []

    def progress(self):
        return {}

    def stop_soon(self): ...

    def interrupt(self, seconds):
        return []

    def close(self):
        self.running.clear()


@pytest.fixture
def disorderly() -> type[Disorderly]:
    """`disorderly(unit, seed=0)`: such a runner of `unit`."""
    return Disorderly


@pytest.fixture
def exit_code_of() -> Callable[..., int]:
    """`exit_code_of(code, *arguments)`: how a process ends that runs this Python code; negative is a signal.

    The process is a fork of this one, because to import all modules again takes several seconds.
    """

    def run(code: str, *arguments: str) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
            process = os.fork()
        if process == 0:
            try:
                sys.argv = ["-c", *arguments]
                exec(code, {"__name__": "__main__"})
            finally:
                os._exit(0 if sys.exc_info()[0] is None else 1)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    return run
