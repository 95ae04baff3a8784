"""The server of the pages as a process: its address, open pages, and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from dashboards.server import events
from dashboards.server.serve import prepare
from nas.errors import NasError, StoreError, UsageError
from tests.dashboards.conftest import Client


def test_ctrl_c_ends_a_server_with_an_open_page_without_an_error(databases):
    command = ["-m", "nas", "dashboard", "--storage", databases["new"], "--port", "0"]
    server = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    try:
        address = urlsplit(server.stderr.readline().split()[4])
        with socket.create_connection((address.hostname, address.port), timeout=30) as page:
            page.sendall(b"GET /studies/new/new.events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert page.recv(15) == b"HTTP/1.1 200 OK"
            server.send_signal(signal.SIGINT)
            _, told = server.communicate(timeout=30)
    finally:
        server.kill()

    assert server.returncode == 0
    assert "Traceback" not in told


def test_the_study_may_be_in_any_of_several_databases(databases):
    served = prepare("failing", [databases["finished"], databases["failing"]], "127.0.0.1", 0, None)
    served.listening.close()

    assert urlsplit(served.address).path == "/studies/failing/failing"
    with pytest.raises(UsageError, match="nope"):
        prepare("nope", [databases["finished"], databases["failing"]], "127.0.0.1", 0, None)


def test_what_is_no_database_and_a_port_in_use_are_told_at_once(databases):
    with pytest.raises(StoreError, match="foo"):
        prepare(None, ["foo://bar"], "127.0.0.1", 0, None)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(NasError, match="another port with --port"):
        prepare(None, [databases["new"]], "127.0.0.1", taken.getsockname()[1], None)


def test_open_pages_are_counted_before_their_stream_begins(app, monkeypatch):
    monkeypatch.setattr(events, "MOST_LISTENERS", 0)
    assert Client(app).get("/studies/new/new.events").status == 503
    monkeypatch.setattr(events, "MOST_LISTENERS", 1)
    assert Client(app).get("/studies/new/nope.events").status == 404
    assert Client(app).get("/studies/new/new.events").status == 200  # the client of this test leaves at once
    assert app.state.events.listeners == 0


def test_a_full_server_takes_no_more(monkeypatch):
    monkeypatch.setattr(events, "MOST_LISTENERS", 2)

    async def entered() -> list[bool]:
        made = events.Events()
        return [made.enter() for _ in range(3)]

    assert asyncio.run(entered()) == [True, True, False]
