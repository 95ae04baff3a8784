"""Databases for the tests of the pages: studies as searches store them, a hostile one, an empty one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from nas.latency import stored
from nas.store import FINAL, Measurement, Store, open_store
from searchspace.cost import Cost
from searchspace.lines import KEPT

for _needed in ("starlette", "uvicorn", "jinja2"):
    pytest.importorskip(_needed, reason="the pages need the extra: pip install 'tessera-nas[dashboard]'")

REAL = ("finished", "failing", "grown", "latency", "interrupted")
RUNNER = asyncio.Runner()  # one for all requests: to start a loop and its threads takes longer than most answers
LOSS = [{"name": "loss", "direction": "minimize"}]
EVIL = "\"'><script>alert(1)</script>${7*7}{{7*7}}\u202e"


@dataclass
class Answer:
    """What the application answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")


class Client:
    """Calls an ASGI application without a network."""

    def __init__(self, app: Any, host: str = "localhost:8765"):
        self.app, self.host = app, host

    def get(self, address: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", address, headers)

    def ask(self, method: str, address: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        path, _, query = address.partition("?")
        given = {"host": self.host} | dict(headers or {})
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode("utf-8", "replace"),
            "query_string": query.encode("utf-8", "replace"),
            "headers": [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8765),
            "state": {},
        }
        found: dict[str, Any] = {"body": b""}
        sent = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return sent.pop() if sent else await asyncio.Event().wait()  # the client stays

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                found.update(message)
            else:
                found["body"] += message.get("body", b"")

        RUNNER.run(self.app(scope, receive, send))
        headers_ = [(name.decode(), value.decode("latin-1")) for name, value in found["headers"]]
        return Answer(found["status"], headers_, found["body"])


SPACE = """kind: decoder
width: !choice [16, 32, 48, 64]
vocabulary: 256
body:
  - repeat: {times: !int [1, 20], of: [residual: {norm: rms_norm, of: !choice [gru, lstm]}]}
"""
TEXT = """kind: decoder
width: {width}
vocabulary: 256
body:
  - repeat: {{times: {times}, of: [residual: {{norm: rms_norm, of: {of}}}]}}
"""
BITS, FLOPS = ({"name": name, "direction": "minimize"} for name in ("bits_per_byte", "flops"))
CONFIG = {
    "task": {"name": "language_model", "options": {}},
    "objectives": [{"name": name, "options": {}} for name in ("bits_per_byte", "flops")],
}
OWNER = "host/boot/1/1/x"
OPERATORS = {5: "baseline"}


def search(path: Path, name: str, trials: int, *, objectives: Any = (BITS, FLOPS), failing: int = 0) -> None:
    """A study of `trials` trials with two rungs, a baseline, a control arm and parents; the first few fail."""
    draw = random.Random(name)
    with open_store(path) as store:
        study = store.create_study(name, CONFIG | {"budget": {"trials": trials}}, SPACE, 0, list(objectives), "d")
        for number in range(trials):
            add(store, study.id, number, draw, [each["name"] for each in objectives], is_failing=number < failing)


def add(
    store: Store, study: int, number: int, draw: random.Random, names: list[str], *, purpose: str = "search",
    is_failing: bool = False, is_open: bool = False, **more: Any,
) -> None:  # fmt: skip
    """A trial that failed, that has a running unit, or that was trained for one rung or two."""
    width, times, of = draw.choice([16, 32, 48, 64]), draw.randint(1, 20), draw.choice(["gru", "lstm"])
    flops, is_searched = 1e4 * width * times, purpose == "search"
    bits = 5 - 0.02 * times - 0.005 * width + draw.gauss(0, 0.02)
    costs = {"flops": flops, "parameters": flops / 8}
    has_parents = is_searched and number > 8
    added = store.add_trial(
        study,
        number,
        architecture=(f"{number:08x}{draw.getrandbits(200):050x}", TEXT.format(width=width, times=times, of=of)),
        seed=0,
        purpose=purpose,
        operator="finalist" if not is_searched else OPERATORS.get(number, "mutate" if has_parents else "random"),
        choices={"width": width, "body[0].repeat.times": times, "body[0].repeat.of[0].residual.of": of},
        known_results=0,
        steps=100,
        owner=OWNER,
        arm="control-random" if number % 4 == 2 and is_searched else "main",
        parents=(number - 3, number - 6) if has_parents else (),
        costs=(int(flops / 8), flops),
        drawing=drawing(["decoder", f"repeat times={times}", of], int(flops / 8)),
        cheap_values={each: costs[each] for each in names if each in costs},
        **more,
    )
    unit, curve = added.unit, [(step, bits + 10 / (step + 5)) for step in range(10, 101, 10)]
    trained: dict[str, Any] = {"curve": curve, "seconds": 2.0, "device": "cpu"}
    measured = [each for each in names if each not in costs]
    if is_failing:
        kind = draw.choice(["diverged", "crashed", "out_of_memory"])
        store.fail(unit.id, OWNER, 1, kind, "ValueError: it failed", 2.0)
    elif not is_open:
        is_last = number % 2 == 1
        store.finish(unit.id, OWNER, 1, dict.fromkeys(measured, bits + 0.1), last=is_last, **trained)
        if not is_last:
            unit = store.promote(added.trial_id, 1, 300, owner=OWNER)
            store.finish(unit.id, OWNER, 1, dict.fromkeys(measured, bits), last=True, **trained)


def drawing(labels: list[str], parameters: int) -> dict[str, Any]:
    """An architecture of nested lines, as a search stores it."""
    cost = Cost(parameters=parameters, flops=10 * parameters, training_flops=30 * parameters)
    numbers = [getattr(cost, name) for name in KEPT]
    families = {"gru": "recurrence", "lstm": "recurrence"}
    lines = [
        [depth, label, families.get(label, ""), [1, 64, 16], 1, False, numbers] for depth, label in enumerate(labels)
    ]
    return {"length": 64, "lines": lines}


def searches(folder: Path) -> None:
    """The studies in `REAL`: one that ended with finals, and others that differ from it in one way."""
    names = ["bits_per_byte", "flops"]
    search(folder / "finished.db", "finished", 40)
    with open_store(folder / "finished.db") as store:
        study, draw = store.study("finished"), random.Random(1)
        for _ in range(3):
            add(store, study.id, store.next_number(study.id, FINAL), draw, names, purpose=FINAL)
    failing = ({"name": "error", "direction": "minimize"}, {"name": "parameters", "direction": "minimize"})
    search(folder / "failing.db", "failing", 30, objectives=failing, failing=16)
    search(folder / "grown.db", "grown", 20)
    with open_store(folder / "grown.db") as store:
        store.add_space_version(store.study("grown").id, SPACE.replace("gru, lstm", "gru, lstm, min_gru"))
    search(folder / "interrupted.db", "interrupted", 10)
    with open_store(folder / "interrupted.db") as store:
        study, draw = store.study("interrupted"), random.Random(1)
        for number in (10, 11):
            add(store, study.id, number, draw, names, is_open=True, lease_seconds=60.0 if number == 10 else 1e-3)
        store.release_all(study.id, [OWNER])
        added = add_plain(store, study.id, 12, architecture=("0c", TEXT), owner=OWNER)
        store.finish(added.unit.id, OWNER, 1, {"bits_per_byte": 4.0}, last=False)
    search(folder / "latency.db", "latency", 4)


def hostile(path: Path) -> None:
    """A study whose every text tries to leave its place."""
    objectives = [{"name": EVIL, "direction": "minimize"}]
    with open_store(path) as store:
        study = store.create_study(f"a/../{EVIL}", {"note": EVIL}, f"kind: decoder # {EVIL}", 0, objectives, "d").id
        evil: dict[str, Any] = {"operator": EVIL, "choices": {EVIL: EVIL}}
        for number in range(3):
            about = {"architecture": (f"{number:04x}", f"kind: {EVIL}\n"), "parents": (0,) if number else ()}
            add_plain(store, study, number, **evil, **about, failure=(EVIL, EVIL) if number == 2 else None)


def add_plain(store: Store, study: int, number: int, **more: Any) -> Any:
    """A trial that waits. more: replaces its values, which do not matter."""
    about: dict[str, Any] = {"architecture": (f"{number:064x}", "kind: decoder\n"), "seed": 0, "purpose": "search"}
    about |= {"operator": "random", "choices": {}, "known_results": 0, "steps": 10}
    return store.add_trial(study, number, **(about | more))


PROBLEM = '{"device":"cpu","flags":[["causal",true]],"sizes":[["rows",64]]}'
USES: list[Any] = [
    {"registers": 32, "spills": 0, "shared": 1024, "warps": 4},
    {"registers": 128, "spills": 0, "shared": 16384},
    {"registers": 255, "spills": 12, "shared": 0},
    None,  # of the failure
    {"registers": EVIL, "shared": -1, EVIL: 1},
    [EVIL],
]


def measurement(operation: str, problem: str, milliseconds: float | None, configuration: str = "{}") -> Measurement:
    """Without a time it failed."""
    return Measurement(
        operation=operation,
        problem=problem,
        dtype="float32",
        implementation="blocked",
        configuration=configuration,
        source="x",
        milliseconds=milliseconds,
        failure=None if milliseconds else "crashed",
        message=EVIL,
    )


def measure(path: Path) -> None:
    """Measurements of the tuner on two devices, one of them a failure with a hostile message.

    Of the second device it is known what the kernels use.
    """
    rows = [
        measurement("softmax", PROBLEM, None if (a, b) == (2, 2) else float(a * b), f'{{"columns":{a},"rows":{b}}}')
        for a in (1, 2, 3)
        for b in (1, 2)
    ]
    compiled = [replace(row, resources=USES[place]) for place, row in enumerate(rows)]
    with open_store(path) as store:
        for key, some in (("one", rows), ("two", compiled)):
            store.add_measurements({"key": key, "name": f"{key} {EVIL}"}, some)
        store.add_measurements({"key": "one"}, latencies())


def latencies() -> list[Measurement]:
    """Three architectures that were measured as a whole and by their pieces, and one piece."""
    conditions = {"phase": "decode", "batch": 1, "length": 8, "threads": 1}
    piece = json.dumps({"block": {"attention": {"heads": 2}}, "length": 8})
    timed = [(stored.PIECE, {"piece": piece, "action": "step"}, 0.5)]
    for place, ratio in enumerate((1.1, 1.2, 2.0), 1):
        what = {"architecture": f"{place:064x}"}
        timed += [(stored.MODEL, what, 10.0 * place * ratio), (stored.SUM, what, 10.0 * place)]
    details = '{"served":[],"details":{"repeated":0.25}}'
    return [measurement(name, json.dumps(conditions | what), time, details) for name, what, time in timed]


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """{name: file} of all databases. Tests change "followed" at most."""
    folder = tmp_path_factory.mktemp("databases")
    searches(folder)
    hostile(folder / "hostile.db")
    open_store(folder / "empty.db").close()
    for name in ("new", "followed"):  # a browser follows the second while a test adds to it
        with open_store(folder / f"{name}.db") as store:
            store.create_study(name, {}, "kind: decoder", 0, LOSS, "d")
    measure(folder / "new.db")
    return {path.stem: str(path) for path in sorted(folder.glob("*.db"))}


@pytest.fixture(scope="session")
def app(databases: dict[str, str]) -> Iterator[Any]:
    from dashboards.server.app import application

    made = application(list(databases.values()), costs=False)
    yield made
    made.state.sources.close()


@pytest.fixture
def serve() -> Iterator[Any]:
    """Makes a client of a server of these databases. options: of `application`."""
    from dashboards.server.app import application

    made: list[Any] = []

    def serving(*places: str | Path, name: str = "localhost:8765", **options: Any) -> Client:
        made.append(application([str(each) for each in places], costs=False, **options))
        return Client(made[-1], name)

    yield serving
    for each in made:
        each.state.sources.close()


@pytest.fixture(scope="session")
def client(app: Any) -> Client:
    return Client(app)
