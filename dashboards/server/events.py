"""Server-sent events: a page is told when its study changed, and then fetches what it shows.

One thread looks at each study that somebody watches, however many browsers there are.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

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

    @property
    def is_full(self) -> bool:
        return self.listeners >= MOST_LISTENERS

    async def stream(self, request: Request, study: StudyCache) -> AsyncIterator[str]:
        """The changes of `study` as lines of an event stream, until the browser or the server closes it."""
        self.listeners += 1
        try:
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
        finally:
            self.listeners -= 1
