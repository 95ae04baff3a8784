"""Tries pieces of work in a child process, which may crash or never end.

A child does one piece of work after the other and sends an answer after each. If an answer does not come in time, or
the child dies, that piece of work is to blame, and a new child continues with the next one. A child that was killed
from outside says nothing about the work: it is tried again, a few times.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from nas.child import Child, Died, Late
from tuner.outcome import LIVES, Kind, Outcome, of_death, of_exception, poisons


class NoChild(Exception):
    """No child process can be started."""


@dataclass(frozen=True)
class Answer:
    """value: what the work returned. raised: it raised an error, which it will raise here too. ended: how it hung,
    crashed, or lost its device; None if it did not."""

    value: Any = None
    raised: bool = False
    ended: Outcome | None = None


class Attempts:
    """Pieces of work in their order. start: starts a child that runs `serve`. message: what to send for a piece of
    work, and whether it is the first for this child. Close this object when it is no longer needed."""

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
            self._send(self.child, new, False)
        elif new:
            self._begin()

    def answer(self, item: Any, limit: float) -> Answer:
        """What came of `item`; each piece of work may take `limit` seconds. Raises NoChild as `add`."""
        self.add([item])
        while item not in self.answers:
            self._receive(time.monotonic() + limit, limit)
        return self.answers[item]

    def collect(self) -> None:
        """Read the answers that are there."""
        with suppress(NoChild):
            while self.waiting and self.child is not None and self.child.has_said(0.0):
                self._receive()

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.kill()
            self.child = None

    def _begin(self) -> Child:
        try:
            self.child = self.start()
        except OSError as error:
            self.waiting.clear()
            raise NoChild(f"no process can be started to try it in: {error}") from error
        self._send(self.child, self.waiting, True)
        return self.child

    def _send(self, child: Child, items: Iterable[Any], first: bool) -> None:
        for each in items:
            child.send(self.message(each, first))
            first = False

    def _receive(self, until: float = 0.0, limit: float = 0.0) -> None:
        """Read the answer to the first piece of work that waits."""
        child, item = self.child or self._begin(), self.waiting[0]
        try:
            self.answers[item] = child.receive(until)
        except Late:
            ended = Outcome(Kind.TIMED_OUT, message=f"it did not end within {limit:.3g} s", seconds=limit)
            self.answers[item] = Answer(ended=ended)
        except Died as died:
            self.close()
            if died.death.is_from_outside:
                self.killed[item] += 1
                if self.killed[item] < LIVES:
                    return  # try it again
            self.answers[item] = Answer(ended=of_death(died.death))
        self.waiting.pop(0)
        if self.answers[item].ended is not None:
            self.close()


def serve(parent: Connection, work: Callable[[Any], Any]) -> None:
    """The loop of a child: answer until the other end of the connection is closed."""
    while True:
        item = parent.recv()
        try:
            found = Answer(work(item))
        except BaseException as error:
            found = Answer(raised=True, ended=of_exception(error) if poisons(error) else None)
        parent.send(found)
