"""A large study for benchmarks, written directly into the tables: the result of a search, without its training.

Each architecture is a real point of the space, with its true hash, so that a search can continue this study. Points
are composed from parts of text, because realising and hashing one the usual way takes a millisecond.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, insert, update

from nas.config import searchfile
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import launch
from nas.engine.resolve import resolve
from nas.metrics import CURVE
from nas.store import drawings, models
from nas.store.database.engine import Database, parse
from searchspace.language import canonical
from searchspace.model.architecture import HASH_VERSION, Architecture

LAYERS = 12
NORMS, EXPANDS, WIDTHS = ("layer_norm", "rms_norm"), tuple(range(1, 9)), (64, 96, 128)
LAYER = "    - residual: {{norm: {norm}, of: {{feed_forward: {{expand: {expand}}}}}}}\n"
HEAD = "kind: decoder\nwidth: {width}\nvocabulary: 256\nbody:\n"
FILE = """
study: {study}
space:
{space}
task: {{language_model: {{length: 32}}}}
objectives: [bits_per_byte, flops]
strategy: nsga2
scheduler: {{halving: {{rungs: [100, 300], factor: 3, rank: quality}}}}
budget: {{trials: 10000000}}
storage: {storage}
checkpoints: null
"""
TABLES = ("architecture", "drawing", "trial", "unit", "objective_value", "metric")  # each after those it refers to
DRAWN = 500  # every 500th trial gets a new drawing; the trials after it share it
STEPS = (100, 300)  # of the rungs
AT_ONCE = 5000  # trials
FAILED = 0.01
SECONDS = 4.0  # the time of a unit


def config_for(storage: str, study: str) -> SearchConfig:
    """The search file of the study."""
    layer = LAYER.format(norm="!choice [layer_norm, rms_norm]", expand="!int [1, 8]")
    space = HEAD.format(width="!choice [64, 96, 128]") + layer * LAYERS
    indented = "".join(f"  {line}\n" for line in space.splitlines())
    return searchfile.parse(FILE.format(study=study, space=indented, storage=json.dumps(storage)))


def fill(storage: str, name: str, trials: int, *, metrics: int = 5, seed: int = 0) -> None:
    """Make a study with `trials` trials; the database must be empty. metrics: of a unit, and points of its curve."""
    config = config_for(storage, name)
    with launch.open_for(config) as store:
        study = launch.enter(store, resolve(config, store))
    database = Database(parse(storage))
    made = _Made(config, study.id, metrics, seed)
    try:
        for first in range(0, trials, AT_ONCE):
            rows = made.rows(range(first, min(first + AT_ONCE, trials)))
            database.write(lambda connection, rows=rows: _insert_all(connection, rows))
        database.write(lambda connection: _count(connection, study.id, made.sequence))
    finally:
        database.close()


def _insert_all(connection: Connection, rows: dict[str, list[dict[str, Any]]]) -> None:
    for name, some in rows.items():
        if some:
            _insert(connection, models.metadata.tables[name], some)


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if connection.dialect.name != "postgresql":
        connection.execute(insert(table), rows)
        return
    columns = list(rows[0])
    cursor = connection.connection.cursor()
    processors = [table.c[name].type.bind_processor(connection.dialect) for name in columns]
    with cursor.copy(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN") as copy:  # type: ignore[attr-defined]
        for row in rows:
            copy.write_row([write(value) if write else value for write, value in zip(processors, row.values())])


def _count(connection: Connection, study_id: int, sequence: int) -> None:
    connection.execute(update(models.study).where(models.study.c.id == study_id).values(sequence=sequence))
    if connection.dialect.name == "postgresql":
        for table in ("trial", "unit"):
            connection.exec_driver_sql(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))")
        connection.exec_driver_sql("ANALYZE")


OF_COPY = "md5(architecture_hash || '{copy}') || md5('{copy}' || architecture_hash)"
CHANGED = {  # the columns that differ in a copy; `trials` and `units` are their numbers in the original
    "architecture": {"hash": "md5(hash || '{copy}') || md5('{copy}' || hash)"},
    "drawing": {"architecture_hash": OF_COPY},
    "trial": {
        **dict.fromkeys(("id", "number", "place", "known_results", "known_trials"), "{name} + {copy} * {trials}"),
        "architecture_hash": OF_COPY,
        "last_unit": "last_unit + {copy} * {units}",
    },
    "unit": {
        **dict.fromkeys(("id", "sequence"), "{name} + {copy} * {units}"),
        "trial_id": "trial_id + {copy} * {trials}",
    },
    "objective_value": {"unit_id": "unit_id + {copy} * {units}", "value": "value * (1 + 0.01 * random())"},
    "metric": {"unit_id": "unit_id + {copy} * {units}"},
}


def multiply(storage: str, name: str, copies: int) -> None:
    """Add copies of the trials of a study, within PostgreSQL. Only commands that summarise the study can use them:
    their hashes are not those of their architectures."""
    database = Database(parse(storage))
    with database.engine.begin() as connection:
        count = {
            table: connection.exec_driver_sql(f"SELECT max(id) FROM {table}").scalar_one()
            for table in ("trial", "unit")
        }
        connection.exec_driver_sql("SET session_replication_role = replica")  # no checks of references
        for copy, table in itertools.product(range(1, copies), TABLES):
            columns = [each.name for each in models.metadata.tables[table].columns]
            known = {"copy": copy, "trials": count["trial"], "units": count["unit"]}
            values = [CHANGED[table].get(each, "{name}").format(name=each, **known) for each in columns]
            of_original = {
                "architecture": f"hash IN (SELECT architecture_hash FROM trial WHERE id <= {count['trial']})",
                "drawing": f"architecture_hash IN (SELECT architecture_hash FROM trial WHERE id <= {count['trial']})",
                "trial": f"id <= {count['trial']}",
                "unit": f"id <= {count['unit']}",
            }.get(table, f"unit_id <= {count['unit']}")
            selected = f"SELECT {', '.join(values)} FROM {table} WHERE {of_original}"
            connection.exec_driver_sql(f"INSERT INTO {table} ({', '.join(columns)}) {selected}")
        connection.exec_driver_sql(f"UPDATE study SET sequence = {copies * count['unit']} WHERE name = '{name}'")
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    database.close()


class _Points:
    """Random points of the space, with the text and the hash of their architectures."""

    def __init__(self, config: SearchConfig, generator: random.Random) -> None:
        self._draw = generator
        space = parts(config).space
        point = space.sample(generator)
        self._paths = list(point.choices)
        self._parts = {}
        for width, norm, expand in itertools.product(WIDTHS, NORMS, EXPANDS):
            text = HEAD.format(width=width) + LAYER.format(norm=norm, expand=expand) * LAYERS
            self._parts[width, norm, expand] = _content(text)
        for _ in range(3):
            choices, _, hash, _ = self.next()
            assert space.point(choices).architecture.hash == hash

    def next(self) -> tuple[dict[str, Any], str, str, int]:
        """(choices, text, hash, size) of an architecture."""
        width = self._draw.choice(WIDTHS)
        layers = [(self._draw.choice(NORMS), self._draw.choice(EXPANDS)) for _ in range(LAYERS)]
        text = HEAD.format(width=width) + "".join(LAYER.format(norm=norm, expand=expand) for norm, expand in layers)
        head, _, tail = self._parts[width, *layers[0]]
        content = head + ",".join(self._parts[width, *layer][1] for layer in layers) + tail
        hash = hashlib.sha256((HASH_VERSION + content).encode()).hexdigest()
        values = [width, *(value for layer in layers for value in layer)]
        return dict(zip(self._paths, values)), text, hash, width * (10 + sum(expand for _, expand in layers))


def _content(text: str) -> tuple[str, str, str]:
    """What the hash of an architecture of equal layers is computed from: before the layers, one layer, after them."""
    encoded = canonical.encoded(Architecture.parse(text).root)
    (model,) = encoded.values()
    layer = json.dumps(model["body"][0], sort_keys=True, separators=(",", ":"))
    content = json.dumps(encoded, sort_keys=True, separators=(",", ":"))
    head, tail = content.split(",".join([layer] * LAYERS))
    return head, layer, tail


class _Made:
    """The rows of a study, trial by trial. A third of the trials continues to the second rung at once."""

    def __init__(self, config: SearchConfig, study_id: int, metrics: int, seed: int) -> None:
        self.sequence = 0
        self._config, self._study, self._metrics = config, study_id, metrics
        self._drawing: Any = None
        self._draw = random.Random(seed)
        self._points = _Points(config, self._draw)
        self._known: set[str] = set()
        self._time = time.time() - 30 * 86400
        self._limit = sorted(self._quality(self._points.next()[3]) for _ in range(3000))[1000]

    def rows(self, numbers: range) -> dict[str, list[dict[str, Any]]]:
        """The rows of these trials, by table."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        for number in numbers:
            self._trial(number, found)
        return found

    def _trial(self, number: int, rows: dict[str, list[dict[str, Any]]]) -> None:
        choices, text, hash, size = self._points.next()
        while hash in self._known:
            choices, text, hash, size = self._points.next()
        self._known.add(hash)
        self._time += SECONDS
        failed = self._draw.random() < FAILED
        quality, flops = self._quality(size), float(size * 3_000_000)
        rungs = 0 if failed else 2 if quality < self._limit else 1
        state = "failed" if failed else "complete" if rungs == 2 else "running"
        time = datetime.fromtimestamp(self._time, UTC)
        error = {"error_kind": "out of memory" if failed else None, "error_text": "It needs 3 GiB." if failed else None}
        trial = {"id": number + 1, "study_id": self._study, "number": number, "place": number, "seed": 0}
        trial |= {"architecture_hash": hash, "purpose": "search", "arm": "main", "state": state, "choices": choices}
        trial |= {"rung": rungs - 1 if rungs else None, "steps": STEPS[rungs - 1] if rungs else None}
        trial |= {"last_unit": self.sequence + rungs if rungs else None}
        trial |= {"operator": "mutation", "parents": [number // 2], "space_version": 0, "variant": ""}
        trial |= {"known_results": self.sequence, "known_trials": number, "cheap_values": {"flops": flops}}
        trial |= {"parameters": size * 100, "step_flops": 16 * flops, "token": f"{number:x}", **error}
        trial |= dict.fromkeys(("created_at", "started_at", "finished_at"), time)
        trial["finished_at"] = None if state == "running" else time
        rows["architecture"].append({"hash": hash, "text": text})
        if number % DRAWN == 0:
            self._drawing = parts(self._config).drawing(Architecture.parse(text))
        rows["drawing"].append(drawings.row(self._study, hash, self._drawing))
        rows["trial"].append(trial)
        for rung in range(max(1, rungs)):
            values = None if failed else {"bits_per_byte": 3 - 0.3 * rung + quality, "flops": flops}
            self._unit(trial["id"], rung, values, error, rows)

    def _quality(self, size: int) -> float:
        return 0.5 * self._draw.random() + 0.5 * (1 - size / (WIDTHS[-1] * (10 + LAYERS * EXPANDS[-1])))

    def _unit(
        self,
        trial: int,
        rung: int,
        values: dict[str, float] | None,
        error: dict[str, str | None],
        rows: dict[str, list[dict[str, Any]]],
    ) -> None:
        self.sequence += 1
        unit = {"id": self.sequence, "study_id": self._study, "trial_id": trial, "kind": "train", "rung": rung}
        unit |= {"steps": STEPS[rung], "state": "failed" if values is None else "done", "owner": "host", "attempts": 1}
        unit |= {"released": 0, "seconds": SECONDS, "device": "cpu", "sequence": self.sequence, "token": f"{trial:x}"}
        unit |= {"checkpoint_uri": None, "checkpoint_sha256": None, **error}
        rows["unit"].append(unit)
        if values is None:
            return
        own = {"unit_id": self.sequence}
        objectives = [own | {"name": name, "value": value} for name, value in values.items()]
        steps = [STEPS[rung] - 10 * place for place in range(self._metrics)]
        metrics = [own | {"name": CURVE, "step": step, "value": self._draw.random()} for step in steps]
        metrics += [
            own | {"name": f"metric {place}", "step": STEPS[rung], "value": self._draw.random()}
            for place in range(self._metrics)
        ]
        rows["objective_value"] += objectives
        rows["metric"] += metrics
