"""The table of how fast each core launches work for a GPU."""

import json
import sys

import pytest
import torch

from benchmarks.gpu import cores


def test_a_core_that_changes_is_told_from_one_that_does_not():
    times = {0: [1.0, 1.0, 1.0, 1.0], 1: [1.0, 2.0, 2.0, 1.0]}
    rows = [
        {"round": n, "core": core, "call": "train", "milliseconds": each}
        for core, found in times.items()
        for n, each in enumerate(found)
    ]
    (found,) = cores.table(rows)
    assert found["quiet"] == 1.0
    assert found["times"] == 2.0
    assert found["slow"] == 2 / 8
    assert found["cores"] == "0.00 to 0.50"
    assert found["changes"] == pytest.approx(2 / 6)


def test_each_call_is_timed_on_a_core_and_the_rows_are_kept(tmp_path, monkeypatch, capsys):
    file = tmp_path / "rows.jsonl"
    monkeypatch.setattr(cores, "SPAN", 0.001)
    monkeypatch.setattr(cores.os, "sched_setaffinity", lambda thread, allowed: None)  # the tests' threads stay
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    command = ["cores", "--device", "cpu", "--file", str(file), "--json"]
    monkeypatch.setattr(sys, "argv", [*command, "--seconds", "0.2"])
    cores.main()
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["call"] for row in kept} == {"forward", "train"}
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [*command, "--seconds", "0"])
    cores.main()
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert sum(row["medians"] for row in rows) == len(kept)
