"""What other devices measured is a start, never more."""

import numpy as np
import pytest

from tuner import strategies
from tuner.recorded import synthetic
from tuner.replay import fraction_of_optimum, replay
from tuner.space import TuningSpace
from tuner.transfer import Elsewhere, hints

RECORDED = synthetic(3)
SPACE, TIMES = RECORDED.space, RECORDED.times
ALL = np.ones(len(SPACE), dtype=bool)


def test_the_order_elsewhere_is_the_order_of_the_hints():
    found = hints(SPACE, [Elsewhere(SPACE, TIMES * 7, ALL)])
    valid = ~np.isnan(TIMES)
    assert np.array_equal(np.argsort(found[valid], kind="stable"), np.argsort(TIMES[valid], kind="stable"))
    assert found[~valid].min() > np.quantile(found[valid], 0.97), "what failed there counts as slow"
    assert abs(found.mean()) < 1e-9
    assert found.std() == pytest.approx(1)


def test_configurations_that_another_space_lacks_get_what_a_regression_says():
    smaller = TuningSpace(SPACE.parameters, SPACE.places[::3])
    found = hints(SPACE, [Elsewhere(smaller, TIMES[::3], np.ones(len(smaller), dtype=bool))])
    unknown = np.ones(len(SPACE), dtype=bool)
    unknown[::3] = False
    unknown &= ~np.isnan(TIMES)
    ranks = (np.argsort(np.argsort(values)) for values in (found[unknown], TIMES[unknown]))
    assert np.corrcoef(*ranks)[0, 1] > 0.9


def test_a_device_that_is_more_alike_counts_for_more():
    one, other = Elsewhere(SPACE, TIMES, ALL, alike=9.0), Elsewhere(SPACE, -TIMES, ALL, alike=1.0)
    assert np.corrcoef(hints(SPACE, [one, other]), hints(SPACE, [one]))[0, 1] > 0.99


def test_without_anything_known_there_are_no_hints():
    assert hints(SPACE, []) is None
    assert hints(SPACE, [Elsewhere(SPACE, TIMES, np.zeros(len(SPACE), dtype=bool))]) is None
    assert hints(SPACE, [Elsewhere(SPACE, np.full(len(SPACE), np.nan), ALL)]) is None


def test_good_hints_find_a_fast_configuration_at_once():
    noisy = TIMES * np.exp(0.1 * np.random.default_rng(0).standard_normal(len(SPACE)))
    found = hints(SPACE, [Elsewhere(SPACE, noisy, ALL)])
    warm = [fraction_of_optimum(RECORDED, replay(RECORDED, "surrogate", 8, s, hints=found), 8) for s in range(3)]
    cold = [fraction_of_optimum(RECORDED, replay(RECORDED, "surrogate", 8, s), 8) for s in range(3)]
    assert min(warm) > 0.9 > np.mean(cold)


def test_hints_that_mislead_are_overcome():
    wrong = hints(SPACE, [Elsewhere(SPACE, 1 / TIMES, ALL)])
    found = [fraction_of_optimum(RECORDED, replay(RECORDED, "surrogate", 60, s, hints=wrong), 60) for s in range(3)]
    assert np.mean(found) > 0.85


def test_hints_of_another_length_are_refused():
    with pytest.raises(ValueError, match="hints must be one number for each of"):
        strategies.make("surrogate", SPACE, hints=np.zeros(3))
