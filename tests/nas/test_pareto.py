"""Fronts, crowding and hypervolume against their definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nas import pareto


def tables(most_rows=24, most_columns=4):
    """[N, M] of small integers, so that ties and duplicates are common."""
    shapes = st.tuples(st.integers(1, most_rows), st.integers(1, most_columns))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(0, 6).map(float)))


def fronts_by_definition(values):
    left, fronts, rank = set(range(len(values))), np.zeros(len(values), dtype=int), 0
    while left:
        best = {i for i in left if not any(pareto.dominates(values[j], values[i]) for j in left)}
        fronts[list(best)] = rank
        left, rank = left - best, rank + 1
    return fronts


def volume_by_inclusion_and_exclusion(values, reference):
    total = 0.0
    for size in range(1, len(values) + 1):
        for rows in itertools.combinations(values, size):
            sides = np.maximum(np.asarray(reference) - np.max(rows, axis=0), 0)
            total += (-1) ** (size + 1) * sides.prod()
    return total


@given(tables())
def test_ranks_are_the_fronts_of_the_definition(values):
    assert pareto.ranks(values).tolist() == fronts_by_definition(values).tolist()


@given(tables())
def test_the_front_is_what_nothing_dominates(values):
    expected = [i for i, row in enumerate(values) if not any(pareto.dominates(other, row) for other in values)]
    assert pareto.front(values).tolist() == expected


def test_no_rows_have_no_front():
    assert pareto.front([]).tolist() == []


def test_infinite_values_are_ranked_behind_finite_ones():
    assert pareto.ranks([[math.inf, 1.0], [2.0, 1.0], [0.0, math.inf]]).tolist() == [1, 0, 0]


@given(tables())
def test_order_never_puts_a_row_before_one_that_dominates_it(values):
    place = {index: position for position, index in enumerate(pareto.order(values).tolist())}
    assert sorted(place) == list(range(len(values)))
    for i, j in itertools.permutations(range(len(values)), 2):
        if pareto.dominates(values[i], values[j]):
            assert place[i] < place[j]


def test_crowding_is_debs_on_a_front_worked_by_hand():
    values = [[0.0, 10.0], [1.0, 6.0], [4.0, 4.0], [10.0, 0.0]]
    assert pareto.crowding(values) == pytest.approx([math.inf, 4 / 10 + 6 / 10, 9 / 10 + 6 / 10, math.inf])


@given(tables())
def test_crowding_of_several_fronts_is_that_of_each_alone(values):
    fronts = pareto.ranks(values)
    together = pareto.crowding(values, fronts)
    for rank in set(fronts.tolist()):
        assert together[fronts == rank] == pytest.approx(pareto.crowding(values[fronts == rank]))


@given(tables(most_rows=7))
def test_hypervolume_equals_inclusion_and_exclusion(values):
    reference = [5.0] * values.shape[1]
    assert pareto.hypervolume(values, reference) == pytest.approx(volume_by_inclusion_and_exclusion(values, reference))


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_hypervolume_of_many_rows_agrees_with_random_points(objectives):
    generator = np.random.default_rng(objectives)
    values = generator.random((30, objectives))
    points = generator.random((40_000, objectives))
    covered = (points[:, None, :] >= values[None]).all(axis=2).any(axis=1).mean()
    assert pareto.hypervolume(values, [1.0] * objectives) == pytest.approx(covered, abs=0.012)  # 5 standard errors


def test_nothing_better_than_the_reference_has_no_volume():
    assert pareto.hypervolume([], [1.0, 1.0]) == 0
    assert pareto.hypervolume([[1.0, 0.0], [2.0, 2.0]], [1.0, 1.0]) == 0


def test_refuses_a_value_that_is_no_number():
    with pytest.raises(ValueError, match="NaN"):
        pareto.ranks([[1.0, math.nan]])


def test_refuses_a_reference_of_another_length():
    with pytest.raises(ValueError, match=r"one number per objective \(2\), but got 3"):
        pareto.hypervolume([[1.0, 2.0]], [3.0, 3.0, 3.0])


def test_refuses_one_list_of_numbers():
    with pytest.raises(ValueError, match=r"\[trials, objectives\], but got the shape \[2\]"):
        pareto.ranks([1.0, 2.0])
