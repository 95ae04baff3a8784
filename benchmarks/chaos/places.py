"""Where searches run, and their faults: on one machine with SQLite, or with PostgreSQL, in two forked processes.

A place has `faults`: a function for each kind, which disturbs the running search and then restores the infrastructure.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.disk import Disk
from benchmarks.chaos.drivers import LEASE_SECONDS, Clock, Driver, Fork, end
from benchmarks.chaos.processes import send
from benchmarks.chaos.search import RANDOM, Search
from benchmarks.chaos.server import Server

STEPS = 6  # of the shortest training: a trial takes a fifth of a second of CPU time
HOUR = 3600.0
Fault = Callable[[random.Random], None]


class Place:
    """Runs one search after the other. `faults`: the kinds of fault. missing: kinds that cannot be made here, and why.

    needed: the number of processes that work on a search.
    """

    needed = 2
    pause = (0.05, 0.6)  # seconds between two faults

    def __init__(self, folder: Path):
        self.folder = folder
        self.strategy = RANDOM
        self.faults: dict[str, Fault] = {}
        self.missing: dict[str, str] = {}
        self.search: Search | None = None
        self.drivers: list[Driver] = []

    def begin(self, number: int, trials: int) -> Search:
        """A new search that has not started; its undisturbed twin has ended."""
        self.search = self.new_search(number, trials)
        self.search.run_undisturbed()
        self.drivers = []
        return self.search

    def new_search(self, number: int, trials: int) -> Search:
        return Search(self.folder, number, trials=trials, steps=STEPS, storage=None, strategy=self.strategy)

    def driver(self, file: Path, log: Path) -> Driver:
        return Fork(file, log)

    def tend(self) -> int | None:
        """Start processes until enough run; the exit code of one that ended by itself, None if there is none."""
        assert self.search is not None
        ended = [driver for driver in self.drivers if driver.poll() is not None]
        self.drivers = [driver for driver in self.drivers if driver not in ended]
        codes = [code for driver in ended if (code := driver.poll()) is not None]
        if 0 not in codes:
            while len(self.drivers) < self.needed:
                self.drivers.append(self.driver(self.search.file, self.log))
        return min(codes, key=abs, default=None)

    @property
    def log(self) -> Path:
        assert self.search is not None
        return self.search.folder.with_suffix(".log")

    def kill(self, luck: random.Random, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one of the processes that run the search."""
        if self.drivers:
            send(luck.choice(self.drivers).pid, number)

    def rest(self) -> None:
        """Wait until the processes of the finished search have ended."""
        for driver in self.drivers:
            driver.wait()

    def close(self) -> None:
        end(self.drivers)


class Local(Place):
    """SQLite, with a separate disk for each search if it can be mounted."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._clock, self._disk = Clock(), None
        self.faults = {
            "driver: SIGKILL": self.kill,
            "driver: SIGTERM": lambda luck: self.kill(luck, signal.SIGTERM),
            "driver: suspended until its leases ran out": self._suspend,
            "clock: set by hours": lambda luck: self._clock.set(luck.choice([-30, -5, 5, 30]) * HOUR),
            "disk: full": self._fill,
        }

    def new_search(self, number: int, trials: int) -> Search:
        if self._disk is not None:
            self._disk.close()
            self._disk = None
        if "disk: full" in self.faults:
            try:
                self._disk = Disk(self.folder / f"search-{number}")
            except OSError as error:
                del self.faults["disk: full"]
                self.missing["disk: full"] = str(error)
        return super().new_search(number, trials)

    def driver(self, file: Path, log: Path) -> Driver:
        return Fork(file, log, self._clock.install)

    def _suspend(self, luck: random.Random) -> None:
        driver = luck.choice(self.drivers)
        if send(driver.pid, signal.SIGSTOP):
            time.sleep(LEASE_SECONDS * luck.uniform(0.2, 1.6))
            send(driver.pid, signal.SIGCONT)

    def _fill(self, luck: random.Random) -> None:
        if self._disk is not None:
            self._disk.fill(luck.uniform(0.2, 1.0))

    def close(self) -> None:
        super().close()
        if self._disk is not None:
            self._disk.close()


class Remote(Place):
    """PostgreSQL: one process connects to it directly, and one through a proxy."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._server = Server(folder)
        self._starts = 0
        self.faults = {
            "database: SIGKILL": lambda luck: self._server.kill(),
            "database: restart": lambda luck: self._server.restart(),
            "database: read-only for a while": lambda luck: self._server.read_only(luck.uniform(0.2, 1.5)),
            "network: partition of a node": self._partition,
        }

    def new_search(self, number: int, trials: int) -> Search:
        return Search(self.folder, number, trials=trials, steps=STEPS, storage=self._server.url, strategy=self.strategy)

    def driver(self, file: Path, log: Path) -> Driver:
        self._starts += 1
        if self._starts % 2:
            return Fork(file, log)
        far = file.with_name("far.yaml")
        far.write_text(file.read_text().replace(self._server.url, self._server.far_url))
        return Fork(far, log)

    def _partition(self, luck: random.Random) -> None:
        self._server.partition(LEASE_SECONDS * luck.uniform(0.2, 1.6), reset=luck.random() < 0.5)

    def close(self) -> None:
        super().close()
        self._server.close()


def signalled(pids: Sequence[int], number: signal.Signals, luck: random.Random) -> bool:
    """Send a signal to one of these processes; False if there is none."""
    return bool(pids) and send(luck.choice(list(pids)), number)


def only(faults: dict[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    """The kinds whose names contain one of these words; all if there are no words."""
    return {name: each for name, each in faults.items() if not kinds or any(word in name for word in kinds)}
