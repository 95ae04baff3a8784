"""Server-sent events: a page is told when its study changed, and then fetches what it shows.

One thread looks at each study that somebody watches, however many browsers there are.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dashboards.server.sources import StudyCache
from nas.errors import NasError

MOST_LISTENERS = 200
PAUSE = 1.5  # seconds between two looks
BEAT = 15.0  # seconds without a change after which a comment keeps the connection open


class Events:
    """Counts the open connections, so that they cannot use up the server."""

    def __init__(self) -> None:
        self.listeners = 0
        self.closing = asyncio.Event()

    def enter(self) -> bool:
        """Count one more connection; False if there are too many. `leave` ends it."""
        if self.listeners >= MOST_LISTENERS:
            return False
        self.listeners += 1
        return True

    def leave(self) -> None:
        """Count one connection less."""
        self.listeners -= 1

    async def stream(self, request: Request, study: StudyCache) -> AsyncIterator[str]:
        """The changes of `study` as lines of an event stream, until the browser or the server closes it."""
        seen, quiet = None, 0.0
        yield "retry: 3000\n\n"
        while not self.closing.is_set() and not await request.is_disconnected():
            try:
                version = study.version if study.is_fresh else await run_in_threadpool(study.look)
            except NasError:
                version = None  # the next look may find the database again
            if version is not None and version != seen:
                yield f"event: changed\ndata: {json.dumps({'version': version})}\n\n"
                seen, quiet = version, 0.0
            elif quiet >= BEAT:
                yield ": still here\n\n"
                quiet = 0.0
            try:
                await asyncio.wait_for(self.closing.wait(), PAUSE)
            except TimeoutError:
                quiet += PAUSE


class Stream(StreamingResponse):
    """The answer with the changes of a study. It leaves `events` when it ends, however it ends."""

    def __init__(self, events: Events, request: Request, study: StudyCache):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events.stream(request, study), headers=headers, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._events.leave()
