"""Fronts that change point by point, against the definition of dominance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas import pareto
from nas.schedulers.fronts import Cloud, Staircase


def antichain(generator, count, objectives):
    """Distinct points that do not dominate each other."""
    rows = np.unique(generator.integers(0, 30, (count, objectives)).astype(float), axis=0)
    return list(map(tuple, rows[pareto.front(rows)].tolist()))


@pytest.mark.parametrize("kind, objectives", [(Staircase, 2), (Cloud, 2), (Cloud, 3), (Cloud, 4)])
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120))
def test_points_join_and_displace_what_they_dominate(kind, objectives, seed, count):
    generator = np.random.default_rng(seed)
    front, members = None, set()
    for point in antichain(generator, count, objectives):
        if front is None:
            front, members = kind([point]), {point}
            continue
        others = [tuple(map(float, row)) for row in generator.integers(0, 30, (3, objectives))]
        for other in [point, *others]:
            if other not in members:
                assert front.dominates(other) == any(pareto.dominates(member, other) for member in members)
        for joining in (point, tuple(value - 1 for value in point)):  # the second one often dominates others
            if joining in members or front.dominates(joining):
                continue
            expected = {member for member in members if pareto.dominates(joining, member)}
            leaving = front.join([joining])
            if expected == members:
                assert leaving is None
                continue
            assert sorted(leaving) == sorted(expected)
            members = members - expected | {joining}
        assert sorted(front.points()) == sorted(members)


def test_a_large_front_keeps_all_its_points():
    generator = np.random.default_rng(0)
    rows = generator.exponential(size=(1500, 3))
    points = list(map(tuple, (rows / rows.sum(axis=1, keepdims=True)).tolist()))
    front = Cloud(points[:1])
    for point in points[1:]:
        assert not front.dominates(point)
        assert front.join([point]) == []
    assert sorted(front.points()) == sorted(points)
    assert all(front.dominates(tuple(value + 1e-9 for value in point)) for point in points)
    assert not any(front.dominates(tuple(value - 1e-9 for value in point)) for point in points)
