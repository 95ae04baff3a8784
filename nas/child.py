"""One supervised child process: call functions in it with a timeout, see how it died, leave no process behind.

A child is a process group of its own. It ends, with every process that it has started, when it is closed and when its
parent ends in any way, `kill -9` included. Its standard output goes to the standard error of the parent, so that only
the parent writes results. If it dies, `death` says how, with what it wrote last: the stack of a crash, too.

The start methods are those of `multiprocessing`: "spawn" starts a new Python, "forkserver" forks a server that has
imported `preload` once, so that further children start in milliseconds, and "fork" copies this process.
"""

from __future__ import annotations

import faulthandler
import math
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import connection, util
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]  # unknown to mypy
from pathlib import Path
from typing import Any, Literal

Method = Literal["spawn", "forkserver", "fork"]
Function = Callable[..., Any] | str  # a string is "module:name": the parent need not import the module

END_SECONDS = 3.0  # for a child to end by itself after its connection was closed
GONE_SECONDS = 30.0  # for the system to end a killed process: the driver of a GPU may need long
LAST = 2000  # characters of what a child wrote that `Death` keeps
OWN_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")  # of an error in the process
UNKNOWN = 255  # the exit code that multiprocessing reports if the server of a process was killed together with it
CRASH = "Fatal Python error"  # how `faulthandler` begins, which then lists the stack, the innermost call first
GUARD_SECONDS = 0.5  # between two looks whether the process that is guarded still runs


@dataclass(frozen=True)
class Death:
    """How a process ended. code: its exit code, negative for a signal; None if it still runs without a connection.
    last: what it wrote last. lacked_memory: the system killed it because the memory was full."""

    code: int | None
    last: str = ""
    lacked_memory: bool = False

    @property
    def is_from_outside(self) -> bool:
        """Whether it may have been killed from outside, so that what it did is not to blame."""
        return self.code == UNKNOWN or (self.code is not None and self.code < 0 and self.how not in OWN_SIGNALS)

    @property
    def how(self) -> str:
        """'SIGSEGV', 'exit code 7', ..."""
        if self.code is None:
            return "a closed connection"
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:  # the signals of real time have no names
            return f"signal {-self.code}"


class Died(Exception):
    """The child ended before it answered. death: how."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"the process ended with {death.how}{death.last and f': {death.last}'}")
        self.death = death


class Late(Exception):
    """The child did not answer in time, so it was killed."""


class Child:
    """A child process that runs `target(connection, *args)`; without a target it answers `call`.

    preload: modules that the fork server imports, if this child is the first that needs the server. quiet: nothing that
    the child prints is shown; `Death.last` has its end. environment: variables besides those of this process. Raises
    OSError if the system starts no process.
    """

    def __init__(
        self,
        target: Function | None = None,
        *args: Any,
        method: Method = "spawn",
        preload: Sequence[str] = (),
        quiet: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(list(preload))
        self.connection, theirs = context.Pipe()
        self._poll = select.poll()  # Connection.poll makes a new one for each call, which takes as long as the rest
        self._poll.register(self.connection.fileno(), select.POLLIN)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # `kill` closes it
        self._killed_before = _killed_for_memory()
        files = {"log": Connection(os.dup(self._log.fileno()), readable=False)}
        if not quiet and (shown := _standard_error()) is not None:
            files["shown"] = shown
        its = target or serve, args, theirs, files, {**os.environ, **(environment or {})}
        self._process = context.Process(target=_main, args=its, daemon=True)
        is_started = False
        try:
            with _without_main(), warnings.catch_warnings():
                # A lock that another thread holds may stay locked in a fork, which then hangs and is killed.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
            is_started = True
        except (AssertionError, EOFError, RuntimeError) as error:  # a daemon has no children; the server has ended
            raise OSError(str(error) or "the server of processes has ended") from error
        finally:
            for each in (theirs, *files.values(), *(() if is_started else (self.connection, self._log))):
                each.close()
        self._at_exit = util.Finalize(self, _kill, args=(self._process,), exitpriority=10)

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message to the target. A child that has ended is noticed when its answer is read."""
        with suppress(OSError):
            self.connection.send(message)

    def has_said(self, until: float) -> bool:
        """Whether there is a message, or no more will come; waits for it until this time of `time.monotonic`."""
        seconds = max(0.0, until - time.monotonic())
        return bool(self._poll.poll(None if math.isinf(seconds) else math.ceil(1000 * seconds)))

    def receive(self, until: float = math.inf) -> Any:
        """The next message of the target. Raises Late after `until`, Died if there is none."""
        if not self.has_said(until):
            raise Late("the process did not answer in time")
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise Died(self.death()) from None

    def call(self, function: Function, *args: Any, seconds: float = math.inf) -> Any:
        """What `function(*args)` returns in the child, or raises there.

        Raises Late if it takes longer than `seconds`, and Died if the child ends; the child is closed then.
        """
        self.send((function, args))
        try:
            is_raised, found = self.receive(time.monotonic() + seconds)
        except (Late, Died):
            self.kill()
            raise
        if is_raised:
            raise found
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def death(self) -> Death:
        """How the process ended, which has closed its connection."""
        self._process.join(END_SECONDS)
        code = self._process.exitcode
        is_full = code == -signal.SIGKILL and _killed_for_memory() > self._killed_before
        self._log.seek(0)
        before, crash, stack = self._log.read().decode(errors="replace").partition(CRASH)
        last = f"{crash}{stack.partition('Extension modules')[0]}"[:LAST] if crash else before[-LAST:]
        return Death(code, last.strip(), is_full)

    def close(self) -> None:
        """Let a process that waits for a message end by itself, then `kill`."""
        self.connection.close()
        self._process.join(END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it has started."""
        self.connection.close()
        self._at_exit()
        self._log.close()


def serve(parent: Connection) -> None:
    """The target that answers `Child.call`: run the functions that are sent until the connection closes."""
    while True:
        function, args = parent.recv()
        try:
            answer = False, found(function)(*args)
        except Exception as error:
            answer = True, ExceptionWithTraceback(error, error.__traceback__)
        try:
            parent.send(answer)
        except (AttributeError, TypeError, ValueError) as error:  # it cannot be pickled
            parent.send((True, RuntimeError(f"{type(answer[1]).__name__} cannot be sent: {error}")))


def found(function: Function) -> Callable[..., Any]:
    """The function that "module:name" stands for, or `function` itself."""
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)


def can_fork() -> bool:
    """Whether forks of a process that has threads work on this system."""
    return sys.platform == "linux"


def _main(
    target: Function,
    args: tuple[Any, ...],
    parent: Connection,
    files: dict[str, Connection],
    environment: dict[str, str],
) -> None:
    """The whole life of a child. It ends at once, because a thread that it has started may never end."""
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        _settle(files)
        found(target)(parent, *args)
        code = 0
    except (EOFError, ConnectionError):  # the parent needs this process no longer
        code = 0
    except BaseException:
        traceback.print_exc()
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _settle(files: dict[str, Connection]) -> None:
    """Make this process a group of its own that ends with its parent and writes where it should."""
    os.setpgid(0, 0)  # Ctrl-C is for the parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = files["log"].fileno()
    shown = files["shown"].fileno() if "shown" in files else log
    for fd, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, shown), (2, shown)):
        os.dup2(file, fd)
    faulthandler.enable(os.dup(log), all_threads=False)
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it may have children
    _guard()


def _guard() -> None:
    """Fork a process that ends this group when this process or its parent ends; this one may hang outside Python."""
    parent, guarded = multiprocessing.parent_process(), os.getpid()
    assert parent is not None
    if os.fork():
        return
    for each in (1, 2):
        os.dup2(0, each)
    os.closerange(3, parent.sentinel)
    os.closerange(parent.sentinel + 1, os.sysconf("SC_OPEN_MAX"))
    for number in signal.valid_signals():
        with suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
    while os.getppid() == guarded and not connection.wait([parent.sentinel], GUARD_SECONDS):
        pass
    os.killpg(0, signal.SIGKILL)


def _kill(process: Any) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join(GONE_SECONDS)


@contextmanager
def _without_main() -> Iterator[None]:
    """Inside the block a new process does not run the main script again; a child needs nothing from it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _standard_error() -> Connection | None:
    """A copy of the standard error; None if it is closed."""
    try:
        return Connection(os.dup(2), readable=False)
    except OSError:
        return None


def _killed_for_memory() -> int:
    """How many processes of this machine, or of this container, were killed because the memory was full."""
    for file in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with suppress(OSError, ValueError):
            for line in Path(file).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
