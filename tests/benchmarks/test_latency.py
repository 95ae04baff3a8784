"""The benchmark of predicted latencies judges what it drew, and counts what it says."""

import itertools

import pytest

from benchmarks import latency
from nas.latency.measured import PREDICTED, PhaseLatency
from nas.latency.predicted import CrossCheck, Predictor
from nas.latency.runs import Setting, streams
from nas.latency.table import Table

SPACE = """
kind: decoder
width: !choice [8, 16]
vocabulary: 16
body: {repeat: {times: !int [1, 6], of: [residual: {of: !choice [gru, convolution, lsh_attention: {heads: 2}]}]}}
"""


@pytest.fixture
def space(tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "SPACE", tmp_path / "space.yaml")
    latency.SPACE.write_text(SPACE)


def found(milliseconds, spread=1.0, **fields):
    return PhaseLatency(
        phase="prefill",
        milliseconds=milliseconds,
        low=milliseconds / spread,
        high=milliseconds * spread,
        samples=1,
        coverage=0.9,
        peak_bytes=None,
        **fields,
    )


def test_a_run_judges_as_many_as_it_is_asked_for(space):
    row, (worst,) = latency.run("decode", count=4, checked=3, length=4, seed=0)

    assert (row["phase"], row["architectures"], row["not sums"]) == ("decode", 4, 0)
    assert row["median error"] <= row["error of 9 in 10"]
    assert -1 <= row["rank correlation"] <= 1
    assert worst.startswith("decode: ")


def test_draws_the_same_every_time_and_only_what_has_the_phase(space):
    first, second = ([each.hash for each in itertools.islice(latency.drawn("a", "decode", 4), 8)] for _ in range(2))

    assert first == second
    assert all(streams(each.configured) for each in itertools.islice(latency.drawn("b", "decode", 4), 8))


def test_the_row_is_of_the_errors():
    judged = [
        latency.Judged(found(predicted, 1.05, kind=PREDICTED), found(measured), 1.0, 2.0)
        for predicted, measured in [(1.0, 1.0), (2.2, 2.0), (3.0, 3.0), (4.0, 4.0)]
    ]
    row = latency._row("prefill", judged, CrossCheck((1.0, 1.0, 1.0)), 1)

    assert row["median error"] == 0 and row["rank correlation"] == pytest.approx(1)
    assert row["error of 9 in 10"] == pytest.approx(0.1)
    assert row["inside the interval"] == 0.75
    assert (row["reached"], row["not sums"], row["s to measure"]) == (True, 1, 2.0)


def test_what_is_judged_was_predicted_and_measured(space):
    predictor = Predictor(Table(), Setting(phase="prefill", length=4))
    judged = latency.judge(predictor, CrossCheck((1.0, 1.0, 1.0)), next(latency.drawn("a", "prefill", 4)))

    assert (judged.predicted.kind, judged.measured.kind) == ("predicted", "measured")
