"""`pytest --workers 2`: what was collected once runs in two forks of the process, file by file.

Nothing is imported or collected twice. Each fork takes the next file that no other took, and sends its reports. It then
ends as pytest does without workers.

With as many forks as cores, a test that sleeps leaves its core idle. So files whose tests are marked `waits` have one
more fork; the others take of them when they have no more. More forks than cores would make tests that compute a third
slower, because each turn of 3 ms fills the caches again. So those that compute ask for turns of 100 ms.
"""

import atexit
import ctypes
import os
import platform
import shutil
import signal
import struct
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ENOUGH = 4 * 2**30  # bytes: several times what the tests need
PLACE = 2  # bytes that name a file
TURN = 100_000_000  # nanoseconds, the longest that Linux grants
SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}  # the numbers of the system call sched_setattr
ONE_PROCESS = {"usepdb": "--pdb", "trace": "--trace", "stepwise": "--sw", "stepwise_skip": "--sw-skip"}  # by name
ON_THE_TERMINAL = ("terminalreporter", "terminalprogress-plugin")


def keep_files_in_memory() -> None:
    """Make the folders of tests where Linux keeps files in memory: to wait for the disk takes a tenth of the time.

    Not if the user names a folder ($TMPDIR), if there is little memory, or if no program may be started there.
    """
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK) or "TMPDIR" in os.environ:
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= ENOUGH and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def forget_this_machine() -> None:
    """Neither read nor write what another run or process measured or tuned on this machine."""
    folder = tempfile.mkdtemp(prefix="tessera-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_DATA_HOME"] = folder
    os.environ["HF_MODULES_CACHE"] = f"{folder}/huggingface"  # read when transformers is imported


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="run the tests in N forks of one process, and those that wait in one more",
    )


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Refuse what needs all tests in one process: a debugger reads the terminal, and `--sw` has one next test."""
    for name, text in ONE_PROCESS.items():
        if config.option.workers > 0 and getattr(config.option, name, False):
            raise pytest.UsageError(f"{text} needs all tests in one process: leave out --workers.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """True after all tests ran. None leaves it to pytest: without workers, or after an error of the collection.

    Raises:
        Session.Failed: as many tests failed as `--maxfail` names, or `-x` was given and one failed.
    """
    option = session.config.option
    if option.workers < 1 or option.collectonly or session.testsfailed:
        return None
    files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
    waiting = _queue(number for number, items in enumerate(files) if items[0].get_closest_marker("waits"))
    busy = _queue(number for number, items in enumerate(files) if not items[0].get_closest_marker("waits"))
    session.config.get_terminal_writer().flush()
    workers: dict[Connection, int] = {}
    for queues in [(waiting,)] + option.workers * [(busy, waiting)]:
        source, reports = Pipe(duplex=False)
        process = os.fork()
        if process == 0:
            for each in (*workers, source):
                each.close()  # so that writing fails when the process that reads has ended
            if len(queues) > 1:
                take_long_turns()
            _work(session, _taken(files, queues), reports)
            return True
        reports.close()
        workers[source] = process
    for queue in (busy, waiting):
        os.close(queue)
    _follow(session, workers)
    return True


def _queue(numbers: Iterable[int]) -> int:
    """A pipe that holds the numbers of files. Of the processes that read it, each gets other numbers."""
    queue, end = os.pipe()
    os.write(end, b"".join(number.to_bytes(PLACE, "big") for number in numbers))
    os.close(end)
    return queue


def _taken(files: list[list[pytest.Item]], queues: Iterable[int]) -> Iterator[pytest.Item]:
    """The tests of one file after the other: those of the first queue, then those of the next one."""
    for queue in queues:
        while place := os.read(queue, PLACE):
            yield from files[int.from_bytes(place, "big")]


def take_long_turns() -> bool:
    """Ask the scheduler to let this process run longer before another one has the core; whether it was asked.

    Linux does so since 6.12. An older Linux ignores it, and other systems have no such call. Processes that are started
    from here, which may be many that wait for one another, have the usual turns (the 1: SCHED_FLAG_RESET_ON_FORK).
    """
    number = SET_ATTRIBUTES.get(platform.machine()) if platform.system() == "Linux" else None
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQ", 48, 0, 1, nice, 0, TURN, 0, 0)  # the struct sched_attr, of 48 bytes
    return number is not None and ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0


class _Sender:
    """Stands in for the reporter on the terminal."""

    def __init__(self, session: pytest.Session, reports: Connection) -> None:
        self._tw = session.config.get_terminal_writer()  # what other plugins write to
        self._session, self._reports = session, reports
        self._of_test: list[dict[str, object]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Those of a test are sent together: the process that reads them takes the core from one that runs tests."""
        config = self._session.config
        self._of_test.append(config.hook.pytest_report_to_serializable(config=config, report=report))
        if report.when == "teardown":
            try:
                self._reports.send(self._of_test)
            except BrokenPipeError:  # the process that reads the reports was interrupted or killed
                self._session.shouldstop = "no process reads the reports"
            self._of_test = []


def _work(session: pytest.Session, items: Iterator[pytest.Item], reports: Connection) -> None:
    """Run tests, and send their reports."""
    forget_this_machine()
    plugins = session.config.pluginmanager
    sender = _Sender(session, reports)
    for name in filter(plugins.has_plugin, ON_THE_TERMINAL):
        plugins.unregister(name=name)
    plugins.register(sender, "terminalreporter")
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are those of the other processes too
    capture.start_global_capturing()
    capture.suspend_global_capture()
    for item, following in pairwise(chain(items, [None])):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail or session.shouldstop:
            raise session.Failed(session.shouldfail or session.shouldstop)


def _follow(session: pytest.Session, workers: dict[Connection, int]) -> None:
    """Show the reports as they come. A test without a complete report has failed: its process ended."""
    hook, unfinished = session.config.hook, {item.nodeid: item for item in session.items}
    try:
        for report in _reports(session.config, list(workers)):
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                del unfinished[report.nodeid]
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
    except session.Failed:
        for process in workers.values():
            os.kill(process, signal.SIGINT)
        raise
    finally:
        for source in workers:
            source.close()  # a worker that is still sending would wait forever
        for process in workers.values():
            os.waitpid(process, 0)
    for each in unfinished.values():
        said = "the process that ran the tests of this file ended too early"
        report = pytest.TestReport(each.nodeid, each.location, {}, "failed", said, "call")
        hook.pytest_runtest_logreport(report=report)


def _reports(config: pytest.Config, sources: list[Connection]) -> Iterator[pytest.TestReport]:
    """What the workers send, until the last one ends."""
    while sources:
        for source in wait(sources):
            try:
                of_test = source.recv()
            except EOFError:
                sources.remove(source)
            else:
                yield from (config.hook.pytest_report_from_serializable(config=config, data=each) for each in of_test)
