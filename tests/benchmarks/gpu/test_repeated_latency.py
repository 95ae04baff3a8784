"""The benchmark of repeated latencies separates noise from the error of a prediction."""

import json
import random
import sys

import pytest

from benchmarks.gpu import repeated_latency


def test_noise_and_error_are_apart():
    rows = [
        {"whole": [1.0 * size, 1.1 * size], "sum": [0.5 * size * wrong, 0.5 * size * wrong]}
        for size, wrong in ((1, 0.9), (10, 1.0), (100, 1.1))
    ]
    found = repeated_latency.judged("train", 64, rows)
    assert found["whole"] == pytest.approx(0.1) and found["sum"] == 0
    assert found["factor"] == pytest.approx(2.1)  # a bias that all share is no error
    assert found["error of means"] == pytest.approx(1 / 0.9 - 1, rel=0.2)


def test_without_an_error_of_its_own_a_predictor_has_the_error_of_one_measurement():
    """Two measurements differ by 1.4 times that."""
    draw = random.Random(0)
    rows = [{"whole": [1 + draw.gauss(0, 0.03) for _ in range(2)], "sum": [1.0, 1.0]} for _ in range(4000)]
    found = repeated_latency.judged("train", 64, rows)
    assert found["error"] == pytest.approx(0.7 * found["whole"], rel=0.05)


def test_what_was_found_is_kept_and_printed(tmp_path, monkeypatch, capsys):
    file = tmp_path / "rows.jsonl"
    monkeypatch.setattr(repeated_latency, "twice", lambda *_: {"whole": [1.0, 1.2], "sum": [1.0, 1.0]})
    command = ["repeated_latency", "--length", "64", "--file", str(file), "--json"]
    monkeypatch.setattr(sys, "argv", [*command, "--count", "2"])
    repeated_latency.main()
    monkeypatch.setattr(sys, "argv", [*command, "--count", "0"])
    repeated_latency.main()
    assert len(file.read_text().splitlines()) == 2
    printed = capsys.readouterr().out
    last = json.loads(printed[printed.rindex('{\n  "title"') :])
    assert last["rows"][0]["architectures"] == 2
    assert last["rows"][0]["whole"] == pytest.approx(0.2)
