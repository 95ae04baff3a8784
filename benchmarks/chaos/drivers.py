"""Processes that run a search: forks of this process, which start in a tenth of a second, or new commands."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import sharedctypes
from pathlib import Path
from typing import Any, Protocol

LEASE_SECONDS = 1.5  # of a forked driver, so that leases run out within a round


class Driver(Protocol):
    """A process that runs a search."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""

    def wait(self) -> None:
        """Wait for its end."""


class Command(subprocess.Popen):
    """`nas search FILE`, with its output in a file."""

    def __init__(self, file: Path, log: Path):
        with log.open("a") as output:
            super().__init__([sys.executable, "-m", "nas", "search", str(file)], stdout=output, stderr=output)


class Clock:
    """A clock that can be set: an offset in seconds for the clock of forked drivers."""

    def __init__(self) -> None:
        self._seconds = sharedctypes.Value("d", 0.0)

    def set(self, seconds: float) -> None:
        self._seconds.value = seconds

    def install(self) -> None:
        """Let this process, and its SQLite, use this clock."""
        from sqlalchemy import Engine, event

        right = time.time

        def now() -> float:
            return right() + self._seconds.value

        time.time = now

        @event.listens_for(Engine, "connect")
        def _(connection: Any, _record: Any) -> None:
            if hasattr(connection, "create_function"):
                connection.create_function("julianday", 1, lambda _: now() / 86400 + 2440587.5)


class Fork:
    """A fork of this process that runs the search in a file."""

    def __init__(self, file: Path, log: Path, prepare: Callable[[], None] = lambda: None):
        self._code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                prepare()
                code = _drive(file, log)
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self) -> None:
        while self.poll() is None:
            time.sleep(0.02)


def _drive(file: Path, log: Path) -> int:
    """Do the same as `nas search FILE`, with short leases -> the exit code."""
    from functools import partial

    from nas.config import searchfile
    from nas.engine import launch, loop
    from nas.errors import NasError

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    launch.Search = partial(loop.Search, lease_seconds=LEASE_SECONDS)
    try:
        launch.search(searchfile.load(file), quiet=True).close()
    except NasError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


def end(drivers: list[Any]) -> None:
    """Kill the drivers that still run."""
    for driver in drivers:
        if driver.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
