"""Runs the server: checks the options and opens a port. Prints nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nas import location
from nas.errors import NasError, UsageError

if TYPE_CHECKING:
    from uvicorn import Server

NEEDED = ("starlette", "uvicorn", "jinja2")
TOKEN = "NAS_DASHBOARD_TOKEN"
MOST_CONNECTIONS = 400


class ServeError(NasError):
    """The server cannot start, or a report cannot be made."""


def check_installed() -> None:
    """Check the libraries that pages and reports need. Raises ServeError if one is missing. Imports none of them."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ServeError(f'The dashboard needs {", ".join(missing)}: pip install "tessera-nas[dashboard]".')


@dataclass(frozen=True)
class Served:
    """A server that is ready to run at `address`."""

    address: str
    server: Server
    listening: socket.socket

    def run(self, *, open_browser: bool = False) -> None:
        """Serve until Ctrl-C, which is not an error."""
        if open_browser:
            threading.Timer(0.5, webbrowser.open, [self.address]).start()
        with contextlib.suppress(KeyboardInterrupt):
            self.server.run(sockets=[self.listening])


def prepare(
    study: str | None,
    storages: Sequence[str],
    host: str,
    port: int,
    token: str | None,
    root: str = "",
    allowed: Sequence[str] = (),
) -> Served:
    """A server with an open port. root, allowed: as in `application`.

    Raises ServeError if a library is missing or the port cannot be opened, UsageError if the token is missing or too
    short, and what opening a database raises.
    """
    check_installed()
    import uvicorn

    from dashboards.server.app import application
    from dashboards.server.security import is_loopback
    from dashboards.server.sources import slug_of, tuner_places

    token = token or os.environ.get(TOKEN) or None
    if not is_loopback(host) and not token:
        raise UsageError(f"Other machines can reach {host}, so a dashboard there needs --token or ${TOKEN}.")
    if token is not None and len(token) < 8:
        raise UsageError("A token must have at least 8 characters, or it can be guessed.")
    places = list(storages) or ([location.storage_of(study), *tuner_places()] if study else [])
    holder = _holder(study, places) if study else 0
    root = f"/{root.strip('/')}" if root.strip("/") else ""
    made: Any = application(places, host=host, token=token, root=root, allowed=allowed)
    sources = made.state.sources.all()
    page = "/"
    if study:
        page = f"/studies/{sources[holder].key}/{slug_of(sources[holder].reader.study(study))}"
    listening = _listen(host, port)
    config = uvicorn.Config(
        made,
        ws="none",
        log_level="warning",
        limit_concurrency=MOST_CONNECTIONS,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=2,
    )
    name = f"[{host}]" if ":" in host else host
    suffix = f"?token={quote(token)}" if token and is_loopback(host) else ""
    address = f"http://{name}:{listening.getsockname()[1]}{root}{page}{suffix}"
    return Served(address, uvicorn.Server(config), listening)


def _holder(study: str, places: Sequence[str]) -> int:
    """The index of the first database that has the study. If none has it, raises what opening the first one raises."""
    first: NasError | None = None
    for number, place in enumerate(places):
        try:
            location.open_existing(study, place)[0].close()
            return number
        except NasError as error:
            first = first or error
    assert first is not None
    raise first


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        raise ServeError(
            f"Cannot listen on {host}, port {port}: {error.strerror}. Choose another port with --port, or another "
            "address with --host."
        ) from None
    return made
