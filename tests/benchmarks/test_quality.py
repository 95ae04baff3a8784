"""The benchmark of search quality: its tables and its report, as far as the recorded data are here."""

import random

import pytest

from benchmarks.quality import __main__ as quality
from benchmarks.quality import invented, proposals
from benchmarks.quality.table import Missing, found, relative_hypervolume, scaled, share_of_front


def test_the_score_of_the_whole_table_is_one():
    rows = list(scaled({"a": (1.0, 9.0), "b": (3.0, 5.0), "c": (7.0, 6.0), "d": (8.0, 2.0)}).values())
    assert relative_hypervolume(rows)(rows) == pytest.approx(1)
    assert 0 < relative_hypervolume(rows)(rows[2:3]) < 1
    assert share_of_front(rows)(rows) == 1
    assert share_of_front(rows)([rows[0], rows[2]]) == pytest.approx(1 / 3)


def test_missing_data_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("NAS_DATA", str(tmp_path))
    with pytest.raises(Missing, match=r"curves\.json is missing; set NAS_DATA to the folder that holds curves/"):
        found("curves", "curves.json")


def test_a_stored_run_is_not_repeated(tmp_path):
    file = tmp_path / "quality.jsonl"
    jobs = [{"table": "t", "arm": "random", "seed": seed, "options": {}, "code": "1"} for seed in (0, 1)]
    file.write_text('{"table": "t", "arm": "random", "seed": 1, "options": {}, "code": "1", "scores": {}}\n')
    done, left = quality.missing_runs(jobs, file)
    assert [run["seed"] for run in done] == [1]
    assert left == jobs[:1]


@pytest.mark.parametrize(
    "name", ["macro-flops", "hwgpt", "hwgpt-rows", "lts-pareto-lm1b-arm", "invented-cell", "graph-cora"]
)
def test_points_of_a_table_have_values(name):
    if name not in quality.tables():
        pytest.skip(f"the data of {name} are not here")
    table, rng = quality.tables()[name], random.Random(1)
    points = [table.space.sample(rng) for _ in range(3)]
    points.append(table.space.mutate(points[0], rng))
    if table.snap:
        points = [table.snap(point, set()) for point in points]
    values = [table.values(point) for point in points]
    assert all(len(row) == table.objectives for row in values)
    assert 0 <= table.score(values) < 1
    if table.evaluate:
        assert table.evaluate(points[0]) == (values[0][0], None)


def test_layers_of_the_invented_tables_act_together():
    """The best option of a layer depends on the others, so the best word of a sum of layers is not the best one."""
    assert invented.cell((0, 2, 2, 0, 2, 0))[1] == 90 and invented.cell((3, 0, 0, 0, 3, 0))[1] < 30
    assert invented.trap((2, 2))[1] < invented.trap((0, 0))[1] < min(invented.trap((2, 0))[1], invented.trap((0, 2))[1])
    assert invented.order((1, 2, 3, 0))[1] < invented.order((2, 1, 3, 0))[1] < invented.order((2, 2, 3, 3))[1]
    values = invented.interactions(2, 2, {2: (1.0, 1.0)}, seed=0)
    mixed = values((0, 0))[1] + values((1, 1))[1] - values((0, 1))[1] - values((1, 0))[1]
    assert abs(mixed) > 0.1


def test_a_proposal_is_timed_after_many_results():
    table = next(each for each in invented.tables() if each.name == "invented-cell")
    times = proposals.milliseconds("random", table, 30, 5)
    assert len(times) == 5 and all(each > 0 for each in times)
    assert proposals.row("model", 1_000, [9.0, 21.0, 23.0]) | {"reached": None} == {
        "strategy": "model",
        "results": 1_000,
        "ms": 22.0,
        "slowest": 23.0,
        "first": 9.0,
        "bar": 20.0,
        "reached": None,
    }
    assert proposals.row("model", 1_000, [9.0, 21.0, 23.0])["reached"] is False
