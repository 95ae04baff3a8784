"""The table of all trials says what the records say, and what changed is merged into it."""

import random
from dataclasses import replace

import numpy as np
import pytest

from dashboards.analysis import history
from dashboards.analysis.lineage import changed, distance, lineage
from dashboards.analysis.tabulated import tabulated
from nas import report
from nas.numbers import FIRST_FINAL
from nas.store import open_reader, open_store
from tests.dashboards.conftest import LOSS, add_plain


@pytest.fixture
def finished(databases):
    with open_reader(databases["finished"]) as store:
        yield store, store.study("finished")


def test_a_row_says_what_the_record_says(finished):
    store, study = finished
    table = tabulated(store, study)
    records = report.results(store, study, purposes=("search", "final"))

    assert table.number.tolist() == [trial.number for trial in records]
    for index, trial in enumerate(records):
        row, plain = table.row(index), report.row(trial)
        assert {name: row[name] for name in plain if name in row} == {n: v for n, v in plain.items() if n in row}


def test_the_front_is_that_of_the_report(finished):
    store, study = finished
    table = tabulated(store, study)

    assert set(table.number[table.front(list(table.signs))]) == {trial.number for trial in report.front(store, study)}


def test_known_costs_can_be_drawn_too_and_one_objective_has_a_front_with_them(finished):
    store, study = finished
    table = tabulated(store, study)
    known = np.random.default_rng(0).permutation(len(table)).astype(float)
    table = replace(table, numbers={**table.numbers, "step_flops": known})
    assert table.quantities == [*table.signs, "parameters", "step_flops"]
    first = next(iter(table.signs))
    alone = replace(table, signs={first: table.signs[first]})
    assert alone.quantities[0] == first and len(alone.quantities) >= 2
    rows, front = np.flatnonzero(alone.longest), alone.front([first, "step_flops"])
    pairs = alone.minimised([first, "step_flops"], rows)
    for row in front:
        own = alone.minimised([first, "step_flops"], np.array([row]))[0]
        assert not ((pairs <= own).all(axis=1) & (pairs < own).any(axis=1)).any()


def test_a_table_grows_with_the_study_and_finals_come_last(tmp_path):
    with open_store(tmp_path / "nas.db") as store:
        study = store.create_study("s", {}, "kind: decoder", 0, LOSS, "d")

        def add(number, purpose, **more):
            add_plain(store, study.id, number, purpose=purpose, **more)

        add(0, "search")
        add(FIRST_FINAL, "final", parents=(0,))
        before, mark = tabulated(store, study), store.mark(study.id)
        add(2, "search", parents=(0,))
        after = tabulated(store, study, before, mark)
        family = lineage(store, study)

    assert before.number.tolist() == [0, FIRST_FINAL]
    assert after.number.tolist() == [0, 2, FIRST_FINAL]
    assert [after.row(index)["final"] for index in range(3)] == [None, None, 1]
    assert sorted(family.origins) == after.number.tolist() and sorted(family.children[0]) == [2, FIRST_FINAL]


def test_the_best_value_so_far_never_gets_worse(finished):
    store, study = finished
    table = tabulated(store, study)
    values = history.best_so_far(table, "bits_per_byte").values
    volume = history.hypervolume(table, ["bits_per_byte", "flops"]).values

    assert (np.diff(values) <= 0).all()
    assert values[-1] == report.best(store, study, limit=1)[0].values["bits_per_byte"]
    assert (np.diff(volume) >= -1e-12).all()
    assert volume[-1] == pytest.approx(1.0)


def test_the_best_by_chance_agrees_with_a_simulation():
    generator = random.Random(0)
    values = [generator.gauss(0, 1) for _ in range(200)]
    middle, low, high = history.by_chance(values, np.asarray([1, 20]))
    drawn = sorted(min(generator.choices(values, k=20)) for _ in range(4000))

    assert middle[1] == pytest.approx(drawn[2000], abs=0.1)
    assert high[1] == pytest.approx(drawn[3800], abs=0.1)
    assert low[1] <= middle[1] <= high[1] <= middle[0]


def test_ancestors_come_nearest_first(finished):
    store, study = finished
    family = lineage(store, study)

    for number in family.origins:
        for parent in family.parents(number):
            assert number in family.children[parent]
            assert parent < number
        assert number not in family.ancestors(number)


def test_changes_name_the_holes():
    a, b = {"width": 32, "depth": 2}, {"width": 64, "depth": 2, "heads": 4}

    assert [(each.path, each.before, each.after) for each in changed(a, b)] == [("width", 32, 64), ("heads", None, 4)]
    assert distance(a, b) == pytest.approx(2 / 3)
    assert distance({"a": 1, "b": [1, 2], "c": 1}, {"a": True, "b": [1, 2], "c": 1}) == pytest.approx(1 / 3)
    assert distance({}, {}) == 0
