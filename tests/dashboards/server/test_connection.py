"""Clients that never finish a request or read no answer are disconnected; a stream of events stays."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from dashboards.server import connection
from dashboards.server.serve import prepare

GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
LONG = 30  # seconds until a test gives up


@pytest.fixture(scope="module")
def port(databases) -> Iterator[int]:
    """A server that waits for requests and readers for a moment only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "REQUEST", 0.3)
        patch.setattr(connection, "ANSWER", 0.3)
        served = prepare(None, [databases["new"]], "127.0.0.1", 0, None)
        served.server.config.app.state.worker.enabled = False  # these tests need no costs
        thread = threading.Thread(target=served.run)
        thread.start()
        yield served.listening.getsockname()[1]
        served.server.should_exit = True
        thread.join(LONG)
        assert not thread.is_alive()


def rest(client: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            found += part
    return found


@pytest.mark.parametrize(
    "piece",
    [b"", b"GET / HT", GET[:-2] % (b"", b""), GET % (b"", b"Content-Length: 9\r\n") + b"abc"],
    ids=["nothing", "part of a line", "part of the headers", "part of a body"],
)
def test_a_request_that_never_ends_is_given_up(port, piece):
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as client:
        client.sendall(piece)
        rest(client)  # times out if the server waits


def test_bytes_that_trickle_in_do_not_keep_a_connection(port):
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(ConnectionError):
            for _ in range(LONG * 20):
                client.sendall(b"x")
                time.sleep(0.05)


def test_a_client_that_reads_nothing_is_given_up(port):
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(LONG)
        client.connect(("127.0.0.1", port))
        with pytest.raises(ConnectionError):
            for _ in range(LONG * 20):  # plotly.js has several megabytes, more than the buffers of the system
                client.sendall(GET % (b"static/plotly.min.js", b""))
                time.sleep(0.05)


def test_a_stream_of_events_and_a_connection_that_is_used_again_stay(port):
    places = set()
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as stream:
        stream.sendall(GET % (b"studies/new/new.events", b""))
        assert stream.recv(15) == b"HTTP/1.1 200 OK"
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
        for _ in range(6):
            client.request("GET", "/static/icon.svg", headers={"host": "localhost"})
            assert client.getresponse().read()
            places.add(client.sock.getsockname())
            time.sleep(0.1)
        client.close()
        stream.settimeout(0.1)
        with pytest.raises(TimeoutError):
            while stream.recv(65536):
                pass
    assert len(places) == 1
