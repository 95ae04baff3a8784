"""Connections with timeouts: a client must finish its request, and read its response, within a given time.

uvicorn limits only the pause between two requests. A client that sends nothing, or a byte now and then, would keep its
connection forever, and a few hundred of them would use up all connections of the server.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST = 20.0  # seconds from the start of a connection, or from the last response, to a complete request
ANSWER = 60.0  # seconds in which the client reads too little; an event stream without new events is not limited


class Timed(H11Protocol):
    """HTTP/1.1 that closes the connection of a client that is too slow."""

    _request: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._request = self.loop.call_later(REQUEST, self._give_up_request)

    def on_response_complete(self) -> None:
        self._stop(self._request)
        self._request = self.loop.call_later(REQUEST, self._give_up_request)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer = self.loop.call_later(ANSWER, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._request)
        self._stop(self._answer)
        super().connection_lost(exc)

    def _give_up_request(self) -> None:
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self.transport.abort()

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
