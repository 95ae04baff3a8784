"""A runner that behaves like a cluster, whose units come back in any order."""

import random

import pytest

from nas.runners.inline import InlineRunner


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


class Stopped(InlineRunner):
    """Asks the search to stop while the unit with this place in the order of the search runs."""

    def __init__(self, unit, place):
        super().__init__(unit)
        self.left = place

    def wait(self, timeout):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().wait(timeout)


@pytest.fixture
def stopped() -> type[Stopped]:
    """`stopped(unit, place)`: such a runner of `unit`; places count from 0."""
    return Stopped


@pytest.fixture
def disorderly() -> type[Disorderly]:
    """`disorderly(unit, seed=0)`: such a runner of `unit`."""
    return Disorderly
