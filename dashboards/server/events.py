"""Server-sent events: an open page receives the parts that changed.

One task reads each study that browsers follow, for all of them. A view that several browsers show is drawn once, and
all of them get the same bytes. The CPU time is counted, and the next reading waits until the budget allows it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import cached_property
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dashboards.server.budget import EVENT, Budget
from nas.errors import NasError

MOST_LISTENERS = 200
PAUSE = 1.5  # seconds between two readings
BEAT = 30.0  # seconds without a change after which a comment is sent, to keep the connection open
GZIP = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # the head of a compressed stream
log = logging.getLogger("dashboards")
Drawn = tuple[int, dict[str, str]]  # the version of a page, and the HTML of its live parts by their ids


class Subject(Protocol):
    """What pages follow: one study, or all studies."""

    address: str
    budget: Budget

    def look(self) -> int:
        """Read what changed, if it is time, and return the version. Raises NasError."""
        ...


class Line:
    """A message of a stream. All browsers get the same bytes."""

    def __init__(self, kind: str = "", data: Any = None, *, text: str = ""):
        self.text = text or f"event: {kind}\ndata: {json.dumps(data)}\n\n"

    @cached_property
    def packed(self) -> bytes:
        """The text, compressed independently of its place in a stream."""
        made = zlib.compressobj(3, zlib.DEFLATED, -zlib.MAX_WBITS)
        return made.compress(self.text.encode()) + made.flush(zlib.Z_FULL_FLUSH)


START, STILL_HERE = Line(text="retry: 3000\n\n"), Line(text=": still here\n\n")


class Followed:
    """A view that browsers follow. version: the last version that was sent; line: the message with it."""

    def __init__(self, draw: Callable[[], Drawn], first: Drawn):
        self.draw = draw
        self.followers = 0
        self.version, parts = first
        self.line = self.greeting
        self._known = {name: hash(text) for name, text in parts.items()}

    @property
    def greeting(self) -> Line:
        """The version without the changes. A browser with an earlier version asks for the page."""
        return Line("changed", {"version": self.version})

    def redraw(self) -> None:
        """Find the parts that changed. A browser that does not show the version `before` asks for the page."""
        before = self.version
        try:
            self.version, parts = self.draw()
        except Exception:  # the browser asks for the page, which says what is wrong
            self.version += 1
            self.line = self.greeting
            return
        changed = {name: text for name, text in parts.items() if self._known.get(name) != hash(text)}
        self._known = {name: hash(text) for name, text in parts.items()}
        self.line = Line("changed", {"version": self.version, "before": before, "parts": changed})


class Watch:
    """Reads one subject for all browsers that follow it. problem: why it cannot be read now, or empty."""

    def __init__(self, subject: Subject, version: int):
        self.subject, self.version = subject, version
        self.views: dict[Any, Followed] = {}
        self.problem = ""
        self.has_ended = False
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._look())

    async def news(self) -> bool:
        """Wait for a change, at most `BEAT` seconds. Return whether there was one."""
        try:
            await asyncio.wait_for(self._news.wait(), BEAT)
        except TimeoutError:
            return False
        return True

    def end(self) -> None:
        """Stop, and wake all followers for the last time."""
        self.has_ended = True
        self._task.cancel()
        self._news.set()

    async def _look(self) -> None:
        while True:
            try:
                if self.subject.budget.is_left:
                    await self._tell(*await run_in_threadpool(self._read))
            except Exception:
                log.exception("looking at %s failed", self.subject.address)
                self.end()  # the browsers ask again
                return
            await asyncio.sleep(PAUSE)

    def _read(self) -> tuple[int, str]:
        with self.subject.budget.spending():
            try:
                return self.subject.look(), ""
            except NasError as error:  # the database may be readable at the next attempt
                return self.version, str(error)

    async def _tell(self, version: int, problem: str) -> None:
        if (version, problem) == (self.version, self.problem):
            return
        self.version, self.problem = version, problem
        if not problem:
            await run_in_threadpool(self._redraw)
        self._news.set()
        self._news = asyncio.Event()

    def _redraw(self) -> None:
        with self.subject.budget.spending():
            for view in list(self.views.values()):
                view.redraw()


class Events:
    """Counts the open connections, so that they cannot use up the server."""

    def __init__(self) -> None:
        self.listeners = 0
        self._watches: dict[Subject, Watch] = {}

    def enter(self) -> bool:
        """Count one more connection; False if there are too many. Call `leave` when it ends."""
        if self.listeners >= MOST_LISTENERS:
            return False
        self.listeners += 1
        return True

    def leave(self) -> None:
        """Count one connection fewer."""
        self.listeners -= 1

    def close(self) -> None:
        """End all streams."""
        for watch in list(self._watches.values()):
            watch.end()

    async def follow(self, subject: Subject, key: Any, draw: Callable[[], Drawn]) -> Follower:
        """Let one more browser follow a view. Raises what `draw` raises.

        key: identifies the view among those of its subject. draw: returns its current live parts.
        """
        known = self._watches.get(subject)
        view = known.views.get(key) if known else None
        if view is None:
            view = Followed(draw, await run_in_threadpool(draw))
        watch = self._watches.get(subject) or self._watches.setdefault(subject, Watch(subject, view.version))
        return Follower(self._watches, watch, key, watch.views.setdefault(key, view))


class Follower:
    """One browser that follows a view, until it calls `leave`."""

    def __init__(self, watches: dict[Subject, Watch], watch: Watch, key: Any, view: Followed):
        self._watches, self._watch, self._key, self._view = watches, watch, key, view
        view.followers += 1

    async def lines(self) -> AsyncGenerator[Line]:
        """The changes of the view, until the server ends."""
        watch, view = self._watch, self._view
        seen, problem = None, ""
        yield START
        while not watch.has_ended:
            if watch.problem != problem:
                problem = watch.problem
                yield Line("problem", problem)
            elif view.version != seen:
                line = view.greeting if seen is None else view.line
                seen = view.version
                watch.subject.budget.spend(EVENT)
                yield line
            elif not await watch.news():
                yield STILL_HERE

    def leave(self) -> None:
        """Stop following. The last browser of a view ends the view, and the last view of a subject ends its task."""
        self._view.followers -= 1
        if not self._view.followers:
            self._watch.views.pop(self._key, None)
        if not self._watch.views:
            self._watch.end()
            self._watches.pop(self._watch.subject, None)


class Stream(StreamingResponse):
    """The response with the changes of a view. It leaves `events` when it ends, also after an error."""

    def __init__(self, events: Events, follower: Follower, *, is_packed: bool):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "vary": "accept-encoding"}
        if is_packed:
            headers["content-encoding"] = "gzip"
        super().__init__(_bytes(follower.lines(), is_packed), headers=headers, media_type="text/event-stream")
        self._events, self._follower = events, follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()  # type: ignore[attr-defined]
            self._follower.leave()
            self._events.leave()


async def _bytes(lines: AsyncGenerator[Line], is_packed: bool) -> AsyncIterator[bytes]:
    async with aclosing(lines):
        if is_packed:
            yield GZIP
        async for line in lines:
            yield line.packed if is_packed else line.text.encode()
