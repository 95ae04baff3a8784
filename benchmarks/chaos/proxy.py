"""A TCP proxy for PostgreSQL: it can cut the connection, silently or with an error."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from pathlib import Path


class Proxy:
    """Passes connections to 127.0.0.1:`port` on to a Unix socket, except while it is `cut_off`."""

    def __init__(self, target: Path):
        self._target = str(target)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_off(self) -> None:
        """Drop everything from now on, without an error on either side."""
        self._open.clear()

    def connect(self, *, reset: bool) -> None:
        """Forward data again: delayed data arrives late. With `reset`, connections are closed instead."""
        if reset:
            pairs, self._pairs = self._pairs, []
            for each in (side for pair in pairs for side in pair):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._open.set()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                self._open.wait()
                server.connect(self._target)
            except OSError:  # the server is down
                client.close()
                continue
            self._pairs.append((client, server))
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with client, server, contextlib.suppress(OSError):
            while True:
                for side in select.select([client, server], [], [])[0]:
                    data = side.recv(65536)
                    self._open.wait()
                    if not data:
                        return
                    other[side].sendall(data)
