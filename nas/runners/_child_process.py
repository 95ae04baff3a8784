"""The child process of the inline runner, from the parent's side: start it, send it work, read its messages, end it."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

from nas.runners._child import Said
from nas.runners.contract import Run
from nas.work import Failure, FailureKind, Outcome

START = (  # the child finds the same modules as this process, and looks for no garbage among them
    "import gc, sys; gc.disable(); from multiprocessing.connection import Connection; "
    "c = Connection(int(sys.argv[1])); sys.path[:] = c.recv(); "
    "from nas.runners import _child; _child.main(c, int(sys.argv[2]))"
)
CLOSE_SECONDS = 3.0  # for a child without a unit to end
MOST_BYTES = 256 * 2**20  # of a message
CHUNK = 2**16


class Garbled(OSError):
    """The child sent something that is not a message: the task has written to its connection."""


class Child:
    """A child process and the connection to it.

    ready: it has said that it can run units. stopped: it has said that it ends because it received SIGTERM.
    """

    def __init__(self) -> None:
        ours, theirs = socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=_errors(),  # the standard output is for the result of the search
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the search, which asks its child to stop
            )
        self.connection = Connection(ours.detach())
        self._poll = select.poll()  # Connection.poll makes a new one for each call, which takes as long as the rest
        self._poll.register(self.connection.fileno(), select.POLLIN)
        self._heard, self._is_closed = bytearray(), False
        self.ready = self.stopped = self.garbled = False
        self._killed_before = _killed_for_memory()

    def greet(self, hello: tuple[Run | None, tuple[str, ...]]) -> None:
        """Tell the process where modules are found, what runs a unit, and which modules to import."""
        self.connection.send(sys.path)
        self.connection.send(hello)

    def has_said(self, until: float) -> bool:
        """Whether there is a complete message, or no more will come; waits for it until this time.

        A message whose end does not come, because the child was stopped in the middle of it, is not waited for longer.
        """
        while not (self._is_closed or self._message_bytes()):
            left = until - time.monotonic()
            if not self._poll.poll(max(0, math.ceil(left * 1000))):
                return False
            try:
                heard = os.read(self.connection.fileno(), CHUNK)
            except ConnectionError:
                heard = b""
            self._heard += heard
            self._is_closed = not heard
        return True

    def message(self) -> tuple[Said, Any]:
        """The next message, once it has been said.

        Raises EOFError if the connection is closed, Garbled if it is no message.
        """
        size = self._message_bytes()
        if size is None:
            raise EOFError
        start, end = size
        data = bytes(self._heard[start:end])
        del self._heard[:end]
        try:
            said, content = pickle.loads(data)
        except Exception as error:  # anything may be raised by bytes that are no pickle
            raise self._no_message() from error
        if not isinstance(said, Said) or (said is Said.OUTCOME and not isinstance(content, Outcome)):
            raise self._no_message()
        return said, content

    def _message_bytes(self) -> tuple[int, int] | None:
        """Where the first message begins and ends, as `Connection.send` writes it; None if its end is not there yet."""
        start, size = 4, struct.unpack_from("!i", self._heard)[0] if len(self._heard) >= 4 else None
        if size == -1:
            start, size = 12, struct.unpack_from("!Q", self._heard, 4)[0] if len(self._heard) >= 12 else None
        if size is None:
            return None
        if not 0 <= size <= MOST_BYTES:
            raise self._no_message()
        return (start, start + size) if len(self._heard) >= start + size else None

    def _no_message(self) -> Garbled:
        self.garbled = True
        return Garbled("the child said what is no message")

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def why_ended(self) -> Failure:
        """The failure of the unit that the process was running when it closed the connection."""
        if self.garbled:
            text = "The unit wrote to the connection between its process and the search, so the process was ended."
            return Failure(FailureKind.CRASHED, text)
        try:
            code = self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return Failure(FailureKind.CRASHED, "The process that ran the unit closed its connection to the search.")
        if code == -signal.SIGKILL and _killed_for_memory() > self._killed_before:
            text = "The system ended the process that ran the unit, because the memory was full."
            return Failure(FailureKind.OUT_OF_MEMORY, text)
        ended = f"signal {_name(-code)}" if code < 0 else f"exit code {code}"
        if self.stopped or code in (-signal.SIGKILL, -signal.SIGTERM):  # from outside
            how = "asked to end (SIGTERM)" if self.stopped else f"ended from outside ({ended})"
            return Failure(FailureKind.WORKER_LOST, f"The process that ran the unit was {how}.")
        return Failure(FailureKind.CRASHED, f"The process that ran the unit ended by itself, with {ended}.")

    def leave(self) -> None:
        """Let a process without a unit end by itself."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)

    def kill(self) -> None:
        """End the process and those that it has started."""
        self.connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the signals of real time have no names
        return str(number)


def _errors() -> int:
    """Where the child's standard output goes: to the standard error, if it is open."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _killed_for_memory() -> int:
    """How many processes of this machine, or of this container, were killed because the memory was full."""
    for file in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(file).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
