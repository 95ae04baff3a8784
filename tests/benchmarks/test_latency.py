"""The benchmark of predicted latencies goes on where it stopped, and its table says what was found."""

import argparse
import itertools
import json

import pytest

from benchmarks import latency
from benchmarks.support.spaces import EVERYTHING, loaded
from nas.latency.calibration import CrossCheck
from nas.latency.predicted import Sum
from nas.latency.runs import why_not
from searchspace.space.space import Space

SPACE = """
kind: decoder
width: !choice [8, 16]
vocabulary: 16
body: {repeat: {times: !int [1, 6], of: [residual: {of: !choice [gru, convolution, lsh_attention: {heads: 2}]}]}}
"""


@pytest.fixture
def space():
    return Space.parse(SPACE)


def rows_of(pairs, **more):
    return [{"sum": s, "milliseconds": m, "load": 1.0, "predicting": 2.0, "measuring": 1.0, **more} for s, m in pairs]


def test_goes_on_where_it_stopped(space, tmp_path, monkeypatch):
    named = []

    class Fast(latency.Predictor):
        def sum(self, architecture):
            named.append(architecture.hash)
            return Sum(1.0, ())

    monkeypatch.setattr(latency, "Predictor", Fast)
    options = argparse.Namespace(seed=0, seconds=0.0, minutes=1.0, device="cpu")
    file, both = tmp_path / "found.jsonl", [("decode", 4), ("prefill", 4)]
    for count in (1, 3):
        latency.collect(latency.Kept(file, 0), both, space, argparse.Namespace(**vars(options), count=count))
    kept = latency.Kept(file, 0)
    assert {each: len(rows) for each, rows in kept.rows.items()} == dict.fromkeys(both, 3)
    assert json.loads(file.read_text().splitlines()[0])["milliseconds"] > 0
    others = latency.Kept(file, 1), latency.Kept(file, 0, "everything_encoder"), latency.Kept(file, 0, device="cuda")
    assert [each.rows for each in others] == [{}, {}, {}]


def test_draws_the_same_every_time_and_only_what_has_the_phase(space):
    some = [[each.hash for each in itertools.islice(latency.drawn("a", "decode", 4, space), 8)] for _ in range(2)]
    assert some[0] == some[1]
    assert not any(why_not(each.configured) for each in itertools.islice(latency.drawn("b", "decode", 4, space), 8))


@pytest.mark.parametrize("name", EVERYTHING)
def test_draws_from_every_kind_of_model_and_ends_without_the_phase(name, monkeypatch, capsys):
    source = loaded(name)
    assert next(latency.drawn("a", "train", 64, source)).configured.type.name in ("decoder", name[len("everything_") :])
    monkeypatch.setattr(latency, "found", lambda predictor, architecture, seconds: {})
    kept = latency.Kept(None, 0, name)
    options = argparse.Namespace(seed=0, seconds=0.0, minutes=1.0, device="cpu", count=2)
    latency.collect(kept, [("prefill", 64), ("decode", 64)], source, options)
    there = [("prefill", 64)] if name == "everything_encoder" else [("prefill", 64), ("decode", 64)]
    assert kept.rows == {each: [{}, {}] for each in there}
    assert ("decode at length 64: no architecture of the space can run." in capsys.readouterr().err) == (len(there) < 2)


def test_a_space_that_is_not_valid_is_named_without_a_traceback(tmp_path, monkeypatch, capsys):
    path = tmp_path / "space.yaml"
    path.write_text("kind: decoder")
    monkeypatch.setattr("sys.argv", ["latency", "--space", str(path)])
    with pytest.raises(SystemExit):
        latency.main()
    assert "decoder needs 'width'" in capsys.readouterr().err


def test_settings_with_too_few_architectures_are_named(tmp_path, monkeypatch, capsys):
    file = tmp_path / "found.jsonl"
    kept = latency.Kept(file, 7)
    for length, count in ((64, 4), (512, 3)):
        for row in rows_of((float(n), 2.0 * n) for n in range(1, count + 1)):
            kept.add("train", length, row)
    monkeypatch.setattr("sys.argv", ["latency", "--count", "0", "--seed", "7", "--phase", "train", "--file", str(file)])
    latency.main()
    printed = capsys.readouterr().out
    assert "train  64" in printed and "left out, with fewer than 4 architectures: train 512 (3)\n" in printed


def test_halting_architectures_have_an_error_of_their_own():
    rows = rows_of([(n, 2.0 * n) for n in range(1, 10)], halting=False) + rows_of([(10.0, 40.0)], halting=True)
    row = latency.judged("train", 64, rows, 24)
    assert (row["halting"], row["their median error"], row["median error"]) == (1, pytest.approx(0.5), pytest.approx(0))


def test_the_row_is_of_the_errors():
    row = latency.judged("train", 64, [*rows_of((n, 2.0 * n) for n in range(1, 31)), {"reason": "no sum"}], 24)
    assert (row["phase"], row["length"], row["architectures"], row["not sums"]) == ("train", 64, 30, 1)
    assert row["median error"] == pytest.approx(0) and row["rank correlation"] == pytest.approx(1)
    assert row["inside the interval"] >= 0.0 and row["ms to predict"] == 2.0


def test_an_architecture_does_not_correct_itself():
    """One of thirty takes twice its prediction, and is off by a half, although its own ratio would help."""
    pairs = [(1.0 + n, 1.0 + n) for n in range(29)] + [(100.0, 200.0)]
    row = latency.judged("train", 64, rows_of(pairs), 29)
    assert row["9 in 10 within"] == pytest.approx(0)
    assert row["inside the interval"] == pytest.approx(29 / 30)
    assert CrossCheck(tuple(m / s for s, m in pairs[:-1])).spread == pytest.approx(1)


def test_every_bar_counts():
    good = {
        "median error": 0.04,
        "9 in 10 within": 0.1,
        "rank correlation": 0.99,
        "inside the interval": 0.95,
        "ms to predict": 40.0,
    }
    assert latency.reached(good)
    bad = {
        "median error": 0.06,
        "9 in 10 within": 0.13,
        "rank correlation": 0.9,
        "inside the interval": 1.0,
        "ms to predict": 51.0,
    }
    assert not any(latency.reached({**good, name: value}) for name, value in bad.items())
