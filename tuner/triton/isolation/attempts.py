"""Tries work in a child process first, because it may crash or never end.

A child does one piece of work after the other and sends an answer after each. If an answer does not come in time, or
the child dies, that piece of work is to blame, and a new child continues with the next one. A child that was killed
from outside says nothing about the work: it is tried again, a few times. A forked child has a copy of everything that
the work needs, and what it changes stays in that copy; it cannot use a GPU.
"""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

from tuner.outcome import LIVES, Kind, Outcome, is_from_outside, of_death, of_exception, poisons

Work = Callable[[Any], Any]


class NoChild(Exception):
    """No child process can be started."""


@dataclass(frozen=True)
class Answer:
    """value: what the work returned. raised: it raised an error, which it will raise here too. ended: how it hung,
    crashed, or lost its device; None if it did not."""

    value: Any = None
    raised: bool = False
    ended: Outcome | None = None


class Child(Protocol):
    """A process that runs `serve` at the other end of the pipe."""

    pipe: Connection

    def end(self) -> int | None:
        """Kill it; returns its exit code, negative for a signal: how it ended, if it had ended before."""


class Attempts:
    """Tries pieces of work in their order. start: starts a child. message: what to send for a piece of work, and
    whether it is the first for this child. Close this object when it is no longer needed."""

    def __init__(
        self, start: Callable[[], Child], message: Callable[[Any, bool], Any] = lambda item, first: item
    ) -> None:
        self.start, self.message = start, message
        self.child: Child | None = None
        self.waiting: list[Any] = []
        self.answers: dict[Hashable, Answer] = {}
        self.killed: Counter[Hashable] = Counter()  # children that were killed from outside, by their piece of work

    def add(self, items: Iterable[Any]) -> None:
        """Send pieces of work that were not sent before. Raises NoChild if no child can be started."""
        new = [each for each in items if each not in self.answers and each not in self.waiting]
        self.waiting += new
        if self.child is not None:
            self._send(new, False)
        elif new:
            self._begin()

    def answer(self, item: Any, limit: float) -> Answer:
        """What came of `item`; each piece of work may take `limit` seconds. Raises NoChild as `add`."""
        self.add([item])
        while item not in self.answers:
            self._receive(limit)
        return self.answers[item]

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.end()
            self.child = None

    def _begin(self) -> None:
        try:
            self.child = self.start()
        except OSError as error:
            self.waiting.clear()
            raise NoChild(f"no process can be started to try it in: {error}") from error
        self._send(self.waiting, True)

    def _send(self, items: Iterable[Any], first: bool) -> None:
        assert self.child is not None
        with suppress(OSError):  # a child that has ended is seen when its answer is read
            for each in items:
                self.child.pipe.send(self.message(each, first))
                first = False

    def _receive(self, limit: float) -> None:
        """Read the answer to the first piece of work that waits."""
        if self.child is None:
            self._begin()
        assert self.child is not None
        item = self.waiting[0]
        try:
            if self.child.pipe.poll(limit):
                self.answers[item] = self.child.pipe.recv()
            else:
                ended = Outcome(Kind.TIMED_OUT, message=f"it did not end within {limit:.3g} s", seconds=limit)
                self.answers[item] = Answer(ended=ended)
        except (EOFError, OSError):
            code, self.child = self.child.end(), None
            self.killed[item] += is_from_outside(code)
            if 0 < self.killed[item] < LIVES and is_from_outside(code):
                return  # try it again
            self.answers[item] = Answer(ended=of_death(code))
        self.waiting.pop(0)
        if self.answers[item].ended is not None:
            self.close()


def serve(pipe: Connection, work: Work) -> None:
    """The loop of a child: answer until the other end of the pipe is closed."""
    with suppress(EOFError, OSError):
        while True:
            item = pipe.recv()
            try:
                found = Answer(work(item))
            except BaseException as error:
                found = Answer(raised=True, ended=of_exception(error) if poisons(error) else None)
            pipe.send(found)


class Forked:
    """A fork of this process that does `work`. Raises OSError if the system allows no more processes."""

    def __init__(self, work: Work) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        with warnings.catch_warnings():
            # A lock that another thread holds may stay locked in the child, which then hangs and is killed.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                self.process = os.fork()
            except OSError:
                self.pipe.close()
                theirs.close()
                raise
        if not self.process:
            try:
                self.pipe.close()
                quiet()
                torch.set_num_threads(1)  # the threads of the pool are not in this process
                serve(theirs, work)
            finally:
                os._exit(0)
        theirs.close()

    def end(self) -> int | None:
        self.pipe.close()
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)  # has no effect on one that has ended
        try:
            _, status = os.waitpid(self.process, 0)
        except ChildProcessError:  # the program has asked for it
            return None
        return os.waitstatus_to_exitcode(status)


def can_fork() -> bool:
    """Whether this system has forks that work."""
    return sys.platform == "linux" and hasattr(os, "fork")


def quiet() -> None:
    """Keep the output of a child from the terminal, leave interrupts to the parent, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()  # it may write to a copy of the terminal
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(nothing, each)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
