"""Rows of measured latencies, read without torch: predictions next to measurements."""

import json

import pytest

from nas.latency import stored
from nas.latency.stored import MODEL, SUM
from nas.store import Measurement


def row(operation, architecture, milliseconds, source="x", **problem):
    known = {"phase": "decode", "batch": 1, "length": 8, "threads": 1} | problem
    return Measurement(
        operation=operation,
        problem=json.dumps({**known, "architecture": architecture}),
        dtype="float32",
        implementation="",
        configuration="{}",
        source=source,
        milliseconds=milliseconds,
        device="here",
    )


def test_a_prediction_does_not_know_its_own_measurement():
    models = [row(MODEL, "a", 12.0), row(MODEL, "b", 22.0), row(MODEL, "c", 60.0)]
    sums = [row(SUM, "a", 10.0), row(SUM, "b", 20.0), row(SUM, "c", 30.0)]
    found = {each.architecture: each for each in stored.compared(models, sums)}

    assert found["c"].predicted == pytest.approx(30.0 * (1.2 + 1.1) / 2)
    assert found["c"].error == pytest.approx(34.5 / 60 - 1)
    assert found["a"].conditions == {"phase": "decode", "batch": 1, "length": 8, "threads": 1}


def test_the_newest_row_counts_and_conditions_and_code_are_kept_apart():
    models = [row(MODEL, "a", 9.0), row(MODEL, "a", 12.0), row(MODEL, "b", 5.0, length=16), row(MODEL, "c", 1.0, "y")]
    sums = [row(SUM, "a", 10.0), row(SUM, "b", 5.0, length=16), row(SUM, "c", 1.0, "x")]
    found = stored.compared(models, sums)

    assert [(each.architecture, each.measured) for each in found] == [("a", 12.0), ("b", 5.0)]
    assert {each.predicted for each in found} == {None}, "nothing else was measured in these conditions"


def test_a_piece_is_described_by_its_block_and_its_options():
    piece = json.dumps({"block": {"attention": {"heads": 2, "causal": True, "of": []}}, "length": 8})

    assert stored.described({"piece": piece}) == ("attention", "heads=2 causal=true")
    assert stored.described({"piece": piece, "reused": True})[1] == "heads=2 causal=true, weights of an earlier call"
    assert stored.described({"update": 32}) == ("optimiser", "elements=32")
