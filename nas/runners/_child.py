"""The process that runs the units of an inline search: it reads units from its parent and sends their outcomes back.

Each message to the parent is a pair: a `Said` and what belongs to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import signal
import sys
import traceback
from dataclasses import replace
from enum import Enum
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from nas.errors import NasError
from nas.runners.inline import InlineRunner
from nas.work import Progress, Work

MOST_TEXT = 2**20  # characters of the message of a failure
STOP = signal.SIGUSR1  # from the parent: save the state of the unit and end
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG of prctl


class Said(Enum):
    """What a message to the parent says."""

    READY = "the process can run units"
    STARTED = "the time limit of the unit begins to count"
    PROGRESS = "how far the unit is"
    SAVING = "the unit was asked to stop, and saves its state"
    INTERRUPTED = "the unit has stopped, and this process ends"
    OUTCOME = "the unit has ended"
    ERROR = "an error that the user has to correct"


def main(connection: Connection, parent: int) -> None:
    """Run units until the parent closes the connection. parent: its process id."""
    _end_with(parent)
    run, modules = connection.recv()
    for module in modules:
        importlib.import_module(module)  # it registers a task, an objective or a block of the user
    if run is None:
        import nas.training.unit  # noqa: F401  # takes seconds, which should not count as the unit's
    gc.freeze()  # what was imported lasts until the process ends, which would search it for garbage then
    gc.enable()
    units = _Units(connection, run)
    units.listen()
    units.say(Said.READY)
    place = _Place()
    try:
        while True:
            units.take(connection.recv())
            place.restore()
            units.listen()  # a unit may have set handlers of its own
            units.say(*_answer(units))
    except KeyboardInterrupt:
        units.say(Said.INTERRUPTED)
    except (EOFError, ConnectionError):  # the parent has ended, or needs this process no longer
        pass
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # at once: a thread of the task may never end


class _Place:
    """What a unit may change in its process, and the next one relies on."""

    def __init__(self) -> None:
        self._path, self._mask = list(sys.path), os.umask(0)
        os.umask(self._mask)
        try:
            self._folder = os.open(".", os.O_RDONLY)
        except OSError:  # it was removed
            self._folder = -1

    def restore(self) -> None:
        """Undo what an earlier unit did to the folder, the path of imports and the output."""
        sys.path[:] = self._path
        os.umask(self._mask)
        with contextlib.suppress(OSError):
            os.fchdir(self._folder)
        for name in ("stdout", "stderr"):
            if getattr(getattr(sys, name, None), "closed", True):
                setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115


def _answer(units: _Units) -> tuple[Said, Any]:
    try:
        outcome = units.wait(0)[0]
    except NasError as error:
        return Said.ERROR, _sendable(error)
    if outcome.failure is not None and len(outcome.failure.message) > MOST_TEXT:
        text = outcome.failure.message
        shortened = f"{text[: MOST_TEXT // 2]} ... {text[-MOST_TEXT // 2 :]}"
        return Said.OUTCOME, replace(outcome, failure=replace(outcome.failure, message=shortened))
    return Said.OUTCOME, outcome


def _sendable(error: NasError) -> NasError:
    """The error, or one with the same text if its type cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return NasError(str(error))
    return error


class _Units(InlineRunner):
    """Runs units in this process, and tells the parent about them."""

    def __init__(self, connection: Connection, run: Any) -> None:
        super().__init__(run)
        self._connection = connection
        self._process = os.getpid()
        self._saying = self._timed = False

    def take(self, work: Work) -> None:
        """Take the next unit."""
        self._timed = work.seconds is not None
        self.submit(work)

    def say(self, what: Said, content: Any = None) -> None:
        """Send a message to the parent. A fork that a unit made and let go on ends here: its parent speaks."""
        if os.getpid() != self._process:
            os._exit(0)
        self._saying = True
        try:
            self._connection.send((what, content))
        finally:
            self._saying = False

    def listen(self) -> None:
        """Handle the signals that ask the running unit to stop. Ctrl-C is for the parent, which says when to stop."""
        signal.signal(signal.SIGINT, lambda *_: None)
        for number in (STOP, signal.SIGTERM):
            signal.signal(number, self.asked)

    def asked(self, number: int, frame: FrameType | None) -> None:
        """A signal handler: the running unit saves its state. Without one the process ends."""
        self.stop_soon()
        if not self._busy and not self._saying:
            raise KeyboardInterrupt

    def _heard(self, work: Work, progress: Progress) -> None:
        self.say(Said.SAVING if self._stopping else Said.PROGRESS, progress)
        super()._heard(work, progress)

    def _started(self) -> None:
        if self._timed:  # a message costs the search a tenth of a millisecond
            self.say(Said.STARTED)

    def _break_off(self, number: int, frame: FrameType | None) -> None:
        if self._busy and not self._saying:  # the handler of a signal: the other message must not be cut in two
            self.say(Said.SAVING)
        super()._break_off(number, frame)


def _end_with(parent: int) -> None:
    """Let the system kill this process when its parent ends; Linux can, elsewhere the next message fails."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)
