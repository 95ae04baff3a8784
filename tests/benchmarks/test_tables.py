"""The table of trained architectures: what it holds, how it is made, and that its rows are of the space."""

import json
import shutil
from dataclasses import replace
from itertools import islice

import pytest

from benchmarks.quality.table import Missing
from benchmarks.tables import make, probes, table
from nas.config import searchfile
from nas.config.parts import parts


@pytest.fixture(scope="module")
def trained():
    return table.load()


def test_holds_what_its_page_says(trained):
    assert len(trained.rows) >= 500
    assert sum(len(row.losses) > 1 for row in trained.rows) >= 80
    assert all(len(curve) == len(trained.steps) for row in trained.rows for curve in row.bits_per_byte.values())
    assert len({json.dumps(dict(row.choices), sort_keys=True) for row in trained.rows}) == len(trained.rows)


def test_rows_are_points_of_todays_space_with_todays_costs(trained):
    today = parts(searchfile.load(make.QUICKSTART)).space
    for row in trained.rows[:: len(trained.rows) // 8]:
        point = today.point(dict(row.choices))
        assert today.feasible(point)
        assert table.costs(point) == row.costs


def test_the_same_architectures_are_drawn_again(trained):
    drawn = islice(make.points(parts(searchfile.load(make.QUICKSTART)).space, 0), 6)
    assert [dict(point.choices) for point in drawn] == [dict(row.choices) for row in trained.rows[:6]]


def test_a_training_gives_a_row_that_can_be_packed(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "STEPS", (1, 2))
    monkeypatch.setattr(make, "EVALUATION", 256)
    wanted = make.jobs(parts(searchfile.load(make.QUICKSTART)).space, 1, 1, 0)
    assert [(job.index, job.seed) for job in wanted] == [(0, 0), (0, 1)]
    rows, file = [make.trained(job, str(make.QUICKSTART), "cpu") for job in wanted], tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    assert not list(make.missing(wanted, file))
    packed = table.pack([file], tmp_path / "table.json.xz")
    assert packed.rows[0].bits_per_byte == {row["seed"]: row["bits_per_byte"] for row in rows}
    assert packed.rows[0].bits_per_byte[0] != packed.rows[0].bits_per_byte[1]
    with pytest.raises(ValueError, match="seed 0 is in the rows twice"):
        table.pack([file, file], tmp_path / "table.json.xz")


def test_a_failed_training_is_not_packed(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"index": 3, "seed": 0, "choices": {}, "failure": "not finite"}))
    with pytest.raises(ValueError, match="Architecture 3, seed 0, failed: not finite"):
        table.pack([file], tmp_path / "table.json.xz")


def test_probes_are_scored_once_and_correlated_with_quality(trained, tmp_path, monkeypatch):
    quality = {json.dumps(dict(row.choices), sort_keys=True): -row.final for row in trained.rows}
    calls = []

    def scored(point):
        calls.append(point)
        best = quality[json.dumps(dict(point.choices), sort_keys=True)]
        return dict.fromkeys((*probes.SIZES, *probes.PROBES), best) | {"snip": -best}

    monkeypatch.setattr(probes, "scored", scored)
    trained = replace(trained, rows=[replace(row, scores={}) for row in trained.rows[:20]])
    for count, new in ((6, 6), (9, 3), (9, 0)):
        calls.clear()
        found = probes.known(trained, count, tmp_path / "scores.jsonl")
        assert (len(found), len(calls)) == (count, new)
    rows = {row["score"]: row["rank correlation"].split()[0] for row in probes.rows_of(trained, found)}
    assert (rows["synflow"], rows["snip"]) == ("1.00", "-1.00")


def test_scores_that_the_table_has_are_not_found_again(trained, tmp_path, monkeypatch):
    scores = [{"snip": float(number)} for number in range(4)]
    file, packed = tmp_path / "scores.jsonl", tmp_path / "table.json.xz"
    file.write_text("".join(json.dumps(each) + "\n" for each in scores[:3]))
    shutil.copy(table.FILE, packed)
    filled = table.with_scores(file, packed)
    assert [row.scores for row in filled.rows[:3]] == scores[:3]
    assert [row.final for row in filled.rows] == [row.final for row in trained.rows]
    some = replace(filled, rows=[*filled.rows[:3], replace(filled.rows[3], scores={})])
    monkeypatch.setattr(probes, "scored", lambda point: scores[3])
    new = tmp_path / "new.jsonl"
    assert probes.known(some, 4, new) == scores
    assert [json.loads(line) for line in new.read_text().splitlines()] == scores
    file.write_text("{}\n" * (len(filled.rows) + 1))
    with pytest.raises(ValueError, match="lines, but the table only"):
        table.with_scores(file, packed)


def test_a_row_is_scored_by_every_probe(trained):
    found = probes.scored(trained.points[1])
    assert set(found) == {*probes.SIZES, *probes.PROBES}
    assert found["parameters"] == trained.rows[1].costs["parameters"] > found["non_embedding_parameters"]


def test_sizes_rank_the_recorded_gpt2_models():
    try:
        found = {row["set"]: row for row in probes.of_lts()}
    except Missing as error:
        pytest.skip(str(error))
    row = found["random_GPT2_wt103"]
    assert row["architectures"] == 200
    assert row["non-embedding parameters"].startswith("0.967 (")
    assert row["all parameters"].startswith("0.737 (")
