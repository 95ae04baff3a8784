"""Server-sent events: a page is told when its study changed, and then fetches what it shows.

One task looks at each study that somebody watches, however many browsers there are. What an announcement costs is known
from the answers that follow it, and the next one waits until that is less than one hundredth of the time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dashboards.server.sources import StudyCache
from nas.errors import NasError

MOST_LISTENERS = 200
PAUSE = 1.5  # seconds between two looks
BEAT = 30.0  # seconds without a change after which a comment keeps the connection open
log = logging.getLogger("dashboards")


class Watch:
    """Looks at one study for all browsers that follow it. `version` is the one that they were told last."""

    def __init__(self, study: StudyCache):
        self.study = study
        self.version: int | None = None
        self.followers = 0
        self.has_ended = False
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._look())

    async def news(self) -> bool:
        """Wait for another version, at most `BEAT` seconds; whether there is one."""
        try:
            await asyncio.wait_for(self._news.wait(), BEAT)
        except TimeoutError:
            return False
        return True

    def end(self) -> None:
        """Wake everybody for the last time."""
        self.has_ended = True
        self._task.cancel()
        self._news.set()

    async def _look(self) -> None:
        while True:
            try:
                if self.study.can_announce:
                    version = await run_in_threadpool(self.study.look)
                    if version != self.version:
                        self._tell(version)
            except NasError:
                pass  # the next look may find the database again
            except Exception:
                log.exception("looking at %s failed", self.study.address)
                self.end()  # the browsers ask again
                return
            await asyncio.sleep(PAUSE)

    def _tell(self, version: int) -> None:
        self.version = version
        self.study.announced()
        self._news.set()
        self._news = asyncio.Event()


class Events:
    """Counts the open connections, so that they cannot use up the server."""

    def __init__(self) -> None:
        self.listeners = 0
        self._watches: dict[StudyCache, Watch] = {}

    def enter(self) -> bool:
        """Count one more connection; False if there are too many. `leave` ends it."""
        if self.listeners >= MOST_LISTENERS:
            return False
        self.listeners += 1
        return True

    def leave(self) -> None:
        """Count one connection less."""
        self.listeners -= 1

    def close(self) -> None:
        """End all streams."""
        for watch in list(self._watches.values()):
            watch.end()

    async def stream(self, study: StudyCache) -> AsyncIterator[str]:
        """The changes of `study` as lines of an event stream, until the browser or the server closes it."""
        if study not in self._watches:
            self._watches[study] = Watch(study)
        watch, seen = self._watches[study], None
        watch.followers += 1
        try:
            yield "retry: 3000\n\n"
            while not watch.has_ended:
                if watch.version != seen:
                    seen = watch.version
                    yield f"event: changed\ndata: {json.dumps({'version': seen})}\n\n"
                elif not await watch.news():
                    yield ": still here\n\n"
        finally:
            watch.followers -= 1
            if not watch.followers:
                watch.end()
                self._watches.pop(study, None)


class Stream(StreamingResponse):
    """The answer with the changes of a study. It leaves `events` when it ends, however it ends."""

    def __init__(self, events: Events, study: StudyCache):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events.stream(study), headers=headers, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()  # type: ignore[attr-defined]
            self._events.leave()
