"""Distances against their formulas, one entry at a time."""

import math

import pytest
import torch

from searchspace.primitives.attention.distances import check_waves, columns, falling, relative_shift, waves


def test_waves_are_sines_then_cosines_of_the_published_frequencies():
    found = waves(torch.tensor([3, 0, -2, 700]), 6, torch.float64)
    for row, t in zip(found.tolist(), (3, 0, -2, 700), strict=True):
        frequencies = [10000 ** (-2 * m / 6) for m in range(3)]
        expected = [math.sin(t * f) for f in frequencies] + [math.cos(t * f) for f in frequencies]
        assert row == pytest.approx(expected, abs=1e-12)


def test_waves_in_a_narrow_type_are_computed_in_a_wide_one():
    distances = falling(5000, 4)
    wide, narrow = waves(distances, 8, torch.float32), waves(distances, 8, torch.bfloat16)
    assert narrow.equal(wide.to(torch.bfloat16))


def test_distances_fall_by_one():
    assert falling(2, 5).tolist() == [2, 1, 0, -1, -2]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(("n", "past"), [(1, 0), (1, 6), (4, 0), (4, 3), (5, 11)])
def test_the_shift_puts_the_score_of_a_distance_below_its_key(n, past, step, causal):
    keys = past + step * (n - 1) + 1  # the last query is at the last key
    R = columns(n, keys, causal=causal, step=step)
    distances = falling(keys - 1, R).expand(2, n, R)
    found = relative_shift(distances, keys, step)
    assert found.shape == (2, n, keys)
    for i in range(n):
        for j in range(keys):
            distance = past + step * i - j
            if distance >= 0 or not causal:
                assert found[:, i, j].tolist() == [distance] * 2


def test_the_shift_passes_every_gradient_to_the_distance_it_came_from():
    scores = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda scores: relative_shift(scores, 5), scores)


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="keys \\+ step columns or more, but got 4 for 4 keys, step 1"):
        relative_shift(torch.zeros(2, 4), 4)
    with pytest.raises(ValueError, match="dim must be even, but got 7"):
        check_waves(7)
