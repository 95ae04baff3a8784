"""The process of the explorer: costs, mistakes with their lines, changes, and an end to what takes too long."""

from __future__ import annotations

import signal
import time

import pytest

from dashboards.explorer.process import Unavailable, Worker

TEXT = "kind: decoder\nwidth: 32\nvocabulary: 256\nbody:\n  - residual: {norm: rms_norm, of: {attention: {heads: 2}}}\n"
SPACE = TEXT.replace("width: 32", "width: !choice [32, 64]").replace("heads: 2", "heads: !choice [2, 4]")


@pytest.fixture(scope="module")
def worker():
    pytest.importorskip("torch")
    made = Worker()
    made.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            made.ask(action="zoo")
            break
        except Unavailable:
            continue
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


def test_a_space_is_sampled_and_a_point_is_changed(worker):
    first = worker.ask(action="sample", text=SPACE, seed=1)["text"]
    second = worker.ask(action="mutate", text=first, space=SPACE, seed=1)["text"]
    crossed = worker.ask(action="crossover", text=first, other=second, space=SPACE, seed=1)["text"]

    assert "!choice" not in first
    assert second != first
    assert crossed
    assert worker.ask(action="show", text=SPACE, length=64)["holes"] == 2


def test_an_architecture_of_another_space_is_explained(worker):
    found = worker.ask(action="mutate", text=TEXT.replace("32", "48"), space=SPACE, seed=1)

    assert "no point of the space" in found["problems"][0]["message"]


def test_a_text_that_takes_too_long_is_ended_and_the_next_one_is_answered(worker):
    with pytest.raises(Unavailable, match="12,000"):
        worker.ask(action="show", text="x" * 20_000, length=1)
    deep = "a: " + "[" * 5000
    assert worker.ask(action="show", text=deep, length=1)["problems"]

    slow = Worker(seconds=0.0)
    slow._process, slow._ready = worker._process, True
    worker._process = None
    slow._process.send_signal(signal.SIGSTOP)  # else it could answer before anybody looks
    with pytest.raises(Unavailable, match="too large"):
        slow.ask(action="show", text=TEXT, length=65)
    assert slow._process is None


def test_without_torch_the_answer_says_so():
    with pytest.raises(Unavailable, match="torch"):
        Worker(enabled=False).ask(action="zoo")
