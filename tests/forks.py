"""`--forks N`: collect the tests once, then run them in N forks of this process.

pytest-xdist starts processes that each import everything and collect all tests, which takes 17 s of CPU in each. As
with its `worksteal`, each fork starts with a share of neighbouring tests, so that those with a common fixture stay
together, and a fork without work takes half of what another one has left.

A fork writes to a pipe which test it starts, and the reports of each test. If a fork dies, its test has failed, and
tests that no fork has started run in new forks.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.config import create_terminal_writer

MOST = 50  # tests that a fork takes at once
PATIENCE = 10.0
Send = Callable[[str, Any], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=1, metavar="N", help="run the tests in N forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """The hook of pytest that runs all tests; None leaves them to pytest."""
    if session.config.option.forks < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    left = list(session.items)
    while left:
        started = _run(session, left)
        assert started, "no fork starts a test"
        left = [item for item in left if item.nodeid not in started]
    return True


def parts_of(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """`items` in their order, in parts of at most MOST tests of one file."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.nodeid.partition("::")[0])]
    return [tests[start : start + MOST] for tests in files for start in range(0, len(tests), MOST)]


class Shares:
    """Which parts each fork runs next; in memory that all forks share."""

    def __init__(self, parts: int, forks: int) -> None:
        bounds = [parts * fork // forks for fork in range(forks + 1)]
        self.next = multiprocessing.get_context("fork").Array("l", bounds[:-1])
        self.ends = multiprocessing.RawArray("l", bounds[1:])

    def take(self, fork: int) -> int | None:
        """The number of a part that no fork has taken, None if there is none."""
        with self.next.get_lock():
            first, ends = self.next.get_obj(), self.ends
            if first[fork] == ends[fork]:
                richest = max(range(len(ends)), key=lambda each: ends[each] - first[each])
                middle = (first[richest] + ends[richest]) // 2
                first[fork], ends[fork], ends[richest] = middle, ends[richest], middle
            if first[fork] == ends[fork]:
                return None
            first[fork] += 1
            return first[fork] - 1


def _run(session: pytest.Session, items: list[pytest.Item]) -> set[str]:
    """Run the tests in forks. Returns the names of those that were started."""
    config, parts = session.config, parts_of(items)
    shares = Shares(len(parts), config.option.forks)
    places = {item.nodeid: item.location for item in items}
    base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    started: set[str] = set()
    alive: list[_Fork] = []
    try:
        for number in range(config.option.forks):
            own = _own(parts, shares, number)
            folder = base / f"fork-{number}-{len(items)}"
            alive.append(_Fork(lambda send, own=own, folder=folder: _in_fork(session, folder, own, send)))
        while alive:
            select.select([fork.pipe for fork in alive], [], [], 0.5)
            for fork in list(alive):
                ended = fork.ended()
                for kind, content in fork.read():
                    if kind == "start":
                        started.add(content)
                        config.hook.pytest_runtest_logstart(nodeid=content, location=places[content])
                    else:
                        _report(session, content)
                if ended:
                    alive.remove(fork)
                    if fork.running:
                        _report(session, _death(config, fork.running, ended, places))
    finally:
        for fork in alive:
            fork.stop()
    return started


def _own(parts: list[list[pytest.Item]], shares: Shares, fork: int) -> Iterator[pytest.Item]:
    """The tests of a fork."""
    while (part := shares.take(fork)) is not None:
        yield from parts[part]


def _in_fork(session: pytest.Session, folder: Path, own: Iterator[pytest.Item], send: Send) -> None:
    """Run the tests `own`, and send when each starts and its reports."""
    config, sending = session.config, _Sending(session.config, send)
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files belong to the process that collected
    capture.start_global_capturing()
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    silent = Path(os.devnull).open("w")  # noqa: SIM115  the other process shows the reports
    reporter._tw = create_terminal_writer(config, silent)
    config.pluginmanager.register(sending, "sending")
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    item = next(own, None)
    while item is not None:
        following = next(own, None)  # pytest keeps the fixtures that it shares with this one
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


class _Sending:
    """The plugin of a fork that sends what the terminal of the other process shows."""

    def __init__(self, config: pytest.Config, send: Send) -> None:
        self.config, self.send = config, send

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.send("start", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.send("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _report(session: pytest.Session, content: dict[str, Any]) -> None:
    hook, config = session.config.hook, session.config
    report = hook.pytest_report_from_serializable(config=config, data=content)
    hook.pytest_runtest_logreport(report=report)
    if report.when == "teardown":
        hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _death(config: pytest.Config, name: str, how: str, places: dict[str, Any]) -> dict[str, Any]:
    """The report of a test in which its process ended."""
    text = f"The process that ran this test ended with {how}."
    report = pytest.TestReport(name, places[name], {}, "failed", text, "call")
    return config.hook.pytest_report_to_serializable(config=config, report=report)


class _Fork:
    """A fork of this process that does `work`, and the pipe from it. running: the test that it has not finished."""

    def __init__(self, work: Callable[[Send], None]) -> None:
        self.pipe, writing = os.pipe()
        self.waiting, self.running = b"", ""
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if not self.process:
            os.close(self.pipe)
            _work(work, writing)
        os.close(writing)
        os.set_blocking(self.pipe, False)

    def read(self) -> Iterator[tuple[str, Any]]:
        """What came since the last time."""
        with suppress(BlockingIOError):
            while came := os.read(self.pipe, 1 << 20):
                self.waiting += came
        while len(self.waiting) >= 4 and len(self.waiting) >= (size := 4 + int.from_bytes(self.waiting[:4], "big")):
            kind, content = pickle.loads(self.waiting[4:size])
            self.waiting = self.waiting[size:]
            if kind == "start":
                self.running = content
            elif content["when"] == "teardown":
                self.running = ""
            yield kind, content

    def ended(self) -> str:
        """How the process ended; "" if it runs. The end of the pipe does not say so: a test may have left a process."""
        if not os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return ""
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """End the process, which has PATIENCE seconds to end what its tests started."""
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process, signal.SIGINT)
            until = time.monotonic() + PATIENCE
            while not self.ended():
                if time.monotonic() > until:
                    os.kill(self.process, signal.SIGKILL)
                time.sleep(0.05)


def _work(work: Callable[[Send], None], writing: int) -> NoReturn:
    """In the fork: do `work` and end. What follows in the stack is for the process that collected."""

    def send(kind: str, content: Any) -> None:
        pickled = pickle.dumps((kind, content))
        left = memoryview(len(pickled).to_bytes(4, "big") + pickled)
        while left:
            left = left[os.write(writing, left) :]

    code = 1
    try:
        work(send)
        code = 0
    except KeyboardInterrupt:
        pass  # the other process says so
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()  # such as the end of servers that tests started
        os._exit(code)
