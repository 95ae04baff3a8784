"""The process of the explorer: costs, mistakes with their lines, changes, and an end to what takes too long."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qsl

import pytest

from dashboards.explorer.process import Unavailable, Worker
from dashboards.pages import trial, tuning
from dashboards.server.parameters import NotFound, Parameters
from dashboards.server.sources import Sources
from dashboards.view import Ask
from nas.latency import stored
from nas.store import open_store
from tests.dashboards.conftest import LOSS, add_plain, measurement

TEXT = "kind: decoder\nwidth: 32\nvocabulary: 256\nbody:\n  - residual: {norm: rms_norm, of: {attention: {heads: 2}}}\n"
SPACE = TEXT.replace("width: 32", "width: !choice [32, 64]").replace("heads: 2", "heads: !choice [2, 4]")


def until_ready(worker):
    """What the process answers when it has started."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return worker.ask(action="zoo")
        except Unavailable:
            assert time.monotonic() < deadline


@pytest.fixture(scope="module")
def worker():
    pytest.importorskip("torch")
    made = Worker(seconds=60)  # a busy machine needs longer than a user would wait
    made.start()
    until_ready(made)
    yield made
    made.close()


def test_costs_are_those_of_the_model(worker):
    from searchspace.model.architecture import Architecture
    from searchspace.model.build import build

    found = worker.ask(action="show", text=TEXT, length=64)

    assert found["lines"][0]["cost"]["parameters"] == sum(
        each.numel() for each in build(Architecture.parse(TEXT)).parameters()
    )
    assert not found["space"]


def test_a_mistake_names_its_line(worker):
    found = worker.ask(action="show", text=TEXT.replace("residual", "residal"), length=64)

    assert found["problems"][0]["line"] == 5
    assert "residual" in found["problems"][0]["message"]


def test_a_mistake_in_the_space_of_a_study_has_no_line_of_the_text(worker):
    own = "kind: decoder\nwidth: !choice [8, 16]\nvocabulary: 256\nbody: [a_block_of_the_study]\n"
    (problem,) = worker.ask(action="mutate", text=TEXT, space=own, seed=1)["problems"]

    assert problem["line"] is None
    assert problem["message"].startswith("In the space of the study: No block is called 'a_block_of_the_study'")


def test_a_space_is_sampled_and_a_point_is_changed(worker):
    first = worker.ask(action="sample", text=SPACE, seed=1)["text"]
    second = worker.ask(action="mutate", text=first, space=SPACE, seed=1)["text"]
    crossed = worker.ask(action="crossover", text=first, other=second, space=SPACE, seed=1)["text"]

    assert "!choice" not in first
    assert "!choice" not in worker.ask(action="sample", text=SPACE, space=TEXT, seed=1)["text"]
    again = [worker.ask(action="sample", text=first, space=SPACE, seed=seed)["text"] for seed in range(8)]
    assert len(set(again)) > 1, "what was sampled has no holes, so the space of the study is sampled"
    assert second != first
    assert crossed
    assert worker.ask(action="show", text=SPACE, length=64)["holes"] == 2


def test_what_serves_a_problem_is_told_with_its_reason(worker):
    problem = '{"device":"cpu","flags":[["gradients",false]],"sizes":[["rows",8],["columns",16]],"threads":1}'
    found = worker.ask(action="serves", operation="rms_norm", dtype="float32", problem=problem)

    assert found["choice"]
    assert found["why"] in tuning.WHY
    assert worker.ask(action="serves", operation="nothing", dtype="float32", problem=problem) == {}


def test_the_page_of_the_tuner_shows_the_default_database(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from kernels.dispatch.device import fingerprint
    from kernels.dispatch.registry import Choice, Problem
    from tuner.outcome import Kind, Outcome
    from tuner.search.cache import Cache
    from tuner.search.results import results_at

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NAS_STORAGE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    cache = Cache(results_at(), "mine.<locals>.scale", fingerprint("cpu"), lambda name: "code", 1)
    problem = Problem("mine.<locals>.scale", "cpu", "float32", (("rows", 3),))
    sources, worker = Sources(), Worker(enabled=False)

    def page(**parameters):
        ask = Ask(sources=sources, parameters=Parameters(parameters), study=None, path="/tuning", worker=worker)
        return tuning.view(ask)

    for count, milliseconds in enumerate((2.0, 1.5), 1):
        timed = Outcome(Kind.TIMED, (milliseconds,), resources={"registers": 32 * count})
        cache.write(problem, {Choice.of("triton", {"BLOCK": count}): timed})
        (row,) = page().tables["problems"].rows
        assert (row["count"], row["best"], row["problem"]) == (count, milliseconds, "rows=3")
    asked = dict(parse_qsl(row["address"].partition("?")[2]))
    rows = page(**asked).tables["configurations"].rows
    assert [(each["milliseconds"], each["registers"]) for each in rows] == [(1.5, 64), (2.0, 32)]
    with pytest.raises(NotFound, match=r"has no measurement of '\.\.'"):
        page(operation="..", database=row["database"])
    sources.close()


def test_an_architecture_of_another_space_is_explained(worker):
    found = worker.ask(action="mutate", text=TEXT.replace("32", "48"), space=SPACE, seed=1)

    assert "not a point of the space" in found["problems"][0]["message"]


row = partial(measurement, configuration='{"details": {}}')


def test_measured_pieces_shade_the_picture_of_a_trial(worker, tmp_path):
    conditions = {"phase": "decode", "batch": 1, "length": 8, "threads": 1}
    found = worker.ask(action="pieces", text=TEXT, conditions=conditions)
    with open_store(tmp_path / "a.db") as store:
        study = store.create_study("a", {}, TEXT, 0, LOSS, "d")
        add_plain(store, study.id, 0, architecture=("00", TEXT))
        sources = Sources([str(tmp_path / "a.db")])
        ask = Ask(
            sources=sources, parameters=Parameters({}), study=sources.study("a", "a"), path="/a/trials/0", worker=worker
        )
        assert len(trial.view(ask).shown["quantities"]) == 3, "nothing was measured"
        store.add_measurements({"key": "one", "name": "One"}, [row(stored.MODEL, json.dumps(conditions), 9.0)])
        rows = [
            row(stored.PIECE, key, 1.0 if place == found["empty"] else 3.0) for place, key in enumerate(found["keys"])
        ]
        store.add_measurements({"key": "one"}, rows)
    word = next(name for name, text in trial.view(ask).shown["quantities"] if text.startswith("Time"))
    shaded = trial.view(replace(ask, parameters=Parameters({"shade": word})))
    sources.close()
    times = {each["block"].strip("· ").split()[0]: each.get("milliseconds") for each in shaded.tables["blocks"].rows}

    assert times["attention"] == 2.0
    assert times["residual"] == 4.0, "itself and the attention"
    assert times["decoder"] == 6.0
    assert times["norm:"] is None


def test_a_text_that_takes_too_long_is_ended_and_the_next_one_is_answered(worker):
    with pytest.raises(Unavailable, match="12,000"):
        worker.ask(action="show", text="x" * 20_000, length=1)
    deep = "a: " + "[" * 5000
    assert worker.ask(action="show", text=deep, length=1)["problems"]

    slow = Worker(seconds=0.0)
    slow._child, slow._is_ready = worker._child, True
    worker._child = None
    slow._child.signal(signal.SIGSTOP)  # else it could answer before anybody looks
    with pytest.raises(Unavailable, match="too large"):
        slow.ask(action="show", text=TEXT, length=65)
    assert slow._child is None


def test_a_process_that_was_killed_is_started_again():
    pytest.importorskip("torch")
    made = Worker()
    made.start()
    made._child.signal(signal.SIGKILL)
    with pytest.raises(Unavailable, match="has ended"):
        made.ask(action="zoo")
    assert until_ready(made)["names"]
    made.close()


def test_without_torch_the_answer_says_so():
    with pytest.raises(Unavailable, match="torch"):
        Worker(enabled=False).ask(action="zoo")
