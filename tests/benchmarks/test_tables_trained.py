"""Real training for searches on tables: each value is computed once, and an interrupted experiment goes on."""

import json
import random
from dataclasses import replace

import pytest

from benchmarks.tables import evolved, trained


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(trained, "SHORT", 256)
    monkeypatch.setattr(trained, "EVALUATION", 256)


def test_a_value_is_computed_once_and_kept(short, tmp_path, monkeypatch):
    whole, parts = (trained.Trained(tmp_path / name, (1, 2)) for name in ("whole.jsonl", "parts.jsonl"))
    point = whole.space.sample(random.Random(1))
    values = [parts.value(point, 1), parts.value(point, 2), parts.score(point)]
    assert [whole.value(point, 2), whole.score(point)] == values[1:]
    assert len(set(values)) == 3
    assert [json.loads(line)["steps"] for line in parts.file.read_text().splitlines()] == [1, 2, 2]
    monkeypatch.setattr(trained, "build", None)  # a training would fail now
    again = trained.Trained(parts.file, (1, 2))
    assert [again.value(point, 1), again.value(point, 2), again.score(point)] == values


def test_a_search_trains_what_its_compute_allows(short, tmp_path):
    source = trained.Trained(tmp_path / "kept.jsonl", (1, 2))
    training = {"hurdles": ("hurdles", {"rungs": (1, 2), "wait": 2})}
    experiment = replace(evolved.REAL, rungs=(1, 2), trainings=training, compute=2)
    chosen, models = evolved.searched(source, experiment, True, "hurdles", 0)
    kept = [json.loads(line) for line in source.file.read_text().splitlines()]
    longest = {row["architecture"]: row for row in kept}
    assert sum(row["steps"] for row in longest.values()) == 4
    assert models == len(longest)
    assert chosen.architecture.hash == min(longest.values(), key=lambda row: row["bits_per_byte"])["architecture"]
    assert kept[0]["architecture"] == evolved.transformer(source.space).architecture.hash
