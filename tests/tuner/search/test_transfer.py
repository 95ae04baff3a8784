"""What other devices measured is a start, never more."""

import numpy as np
import pytest

from tuner import strategies
from tuner.replay.recorded import synthetic
from tuner.replay.replay import fraction_of_optimum, replay
from tuner.search import transfer
from tuner.search.transfer import OtherDevice, hints
from tuner.space import TuningSpace
from tuner.strategies import _warm as warm
from tuner.strategies.contract import Hints

RECORDED = synthetic(3)
SPACE, TIMES = RECORDED.space, RECORDED.times
ALL = np.ones(len(SPACE), dtype=bool)


def test_the_order_elsewhere_is_the_order_of_the_hints():
    (found,) = hints(SPACE, [OtherDevice(SPACE, TIMES * 7, ALL)]).times
    valid = ~np.isnan(TIMES)
    np.testing.assert_allclose(found[valid], np.log(TIMES[valid] / RECORDED.best))
    assert (found[~valid] == found[valid].max()).all(), "what failed there counts as slow"


def test_configurations_that_another_space_lacks_get_what_a_regression_says():
    smaller = TuningSpace(SPACE.parameters, SPACE.places[::3])
    (found,) = hints(SPACE, [OtherDevice(smaller, TIMES[::3], np.ones(len(smaller), dtype=bool))]).times
    unknown = np.ones(len(SPACE), dtype=bool)
    unknown[::3] = False
    unknown &= ~np.isnan(TIMES)
    ranks = (np.argsort(np.argsort(values)) for values in (found[unknown], TIMES[unknown]))
    assert np.corrcoef(*ranks)[0, 1] > 0.9


def test_a_device_that_is_more_alike_counts_for_more():
    one, other = OtherDevice(SPACE, TIMES, ALL, likeness=9.0), OtherDevice(SPACE, 1 / TIMES, ALL, likeness=1.0)
    found = hints(SPACE, [one, other])
    assert found.weights == pytest.approx([0.9, 0.1])
    first = strategies.make("surrogate", SPACE, hints=found).ask()
    assert RECORDED.best / TIMES[first] > 0.9


def test_without_anything_known_there_are_no_hints():
    assert hints(SPACE, []) is None
    assert hints(SPACE, [OtherDevice(SPACE, TIMES, np.zeros(len(SPACE), dtype=bool))]) is None
    assert hints(SPACE, [OtherDevice(SPACE, np.full(len(SPACE), np.nan), ALL)]) is None


@pytest.mark.parametrize("time", [0.0, -1.0, np.inf, 1e-300], ids=str)
def test_an_impossible_time_elsewhere_hides_no_other(time):
    damaged = TIMES.copy()
    damaged[5] = time
    found = hints(SPACE, [OtherDevice(SPACE, damaged, ALL)])
    others = ~np.isnan(TIMES) & (np.arange(len(SPACE)) != 5)
    expected = np.log(TIMES[others])
    np.testing.assert_allclose(np.diff(found.times[0][others]), np.diff(expected), atol=1e-9)
    strategy = strategies.make("surrogate", SPACE, hints=found)
    for _ in range(10):
        strategy.tell(number := strategy.ask(), float(np.nan_to_num(TIMES[number], nan=50.0)))


def test_only_the_most_similar_of_many_devices_count_and_none_with_other_parameters():
    small = TuningSpace.product({"x": [1, 2, 3]})
    many = [OtherDevice(small, np.arange(3) + 1.0, np.ones(3, dtype=bool), 1.0 + each % 7) for each in range(300)]
    found = hints(small, many)
    assert found.times.shape == (transfer.MOST_DEVICES, 3) and len(set(found.weights)) == 1
    other = TuningSpace.product({"y": [1, 2, 3]})
    assert hints(other, many) is None


@pytest.mark.parametrize("warmed", [False, True], ids=["cold", "warm"])
def test_a_measured_time_of_zero_is_only_very_short(warmed):
    strategy = strategies.make(
        "surrogate", SPACE, hints=hints(SPACE, [OtherDevice(SPACE, TIMES, ALL)]) if warmed else None
    )
    for step in range(14):
        strategy.tell(strategy.ask(), 0.0 if step == 7 else 1.0 + step)
    assert strategy.results[strategy.best] > 0


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_hints_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="hints must be finite"):
        strategies.make("surrogate", SPACE, hints=Hints(np.full((1, len(SPACE)), bad), np.ones(1)))


def test_good_hints_find_a_fast_configuration_at_once():
    noisy = TIMES * np.exp(0.1 * np.random.default_rng(0).standard_normal(len(SPACE)))
    found = hints(SPACE, [OtherDevice(SPACE, noisy, ALL)])
    warm = [fraction_of_optimum(RECORDED, replay(RECORDED, "surrogate", 8, s, hints=found), 8) for s in range(3)]
    cold = [fraction_of_optimum(RECORDED, replay(RECORDED, "surrogate", 8, s), 8) for s in range(3)]
    assert min(warm) > 0.9 > np.mean(cold)


def test_hints_that_mislead_are_overcome():
    wrong = hints(SPACE, [OtherDevice(SPACE, 1 / TIMES, ALL)])
    found = [fraction_of_optimum(RECORDED, replay(RECORDED, "surrogate", 60, s, hints=wrong), 60) for s in range(3)]
    assert np.mean(found) > 0.85


def test_hints_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"hints must be \(1, \d+\), a number for each device and configuration"):
        strategies.make("surrogate", SPACE, hints=Hints(np.zeros((1, 3)), np.ones(1)))


def test_the_device_that_turns_out_to_be_like_this_one_gets_the_weight():
    found = hints(SPACE, [OtherDevice(SPACE, 1 / TIMES, ALL), OtherDevice(SPACE, TIMES, ALL)])
    strategy = strategies.make("surrogate", SPACE, hints=found)
    assert isinstance(strategy, warm.Warm)
    for _ in range(12):
        number = strategy.ask()
        value = TIMES[number]
        strategy.tell(number, None if np.isnan(value) else float(value))
    _, wrong, right = strategy._weights(strategy._values())[0]
    assert right > wrong + 0.2


@pytest.mark.parametrize(
    ("times", "known", "is_alone"),
    [(TIMES, warm.ALONE, True), (TIMES, warm.MISLED, False), (1 / TIMES, warm.MISLED, True), (1 / TIMES, 5, False)],
    ids=["true-late", "true-early", "false-early", "false-at-once"],
)
def test_every_other_proposal_is_that_of_a_search_without_hints_later_or_if_they_mislead(times, known, is_alone):
    found = hints(SPACE, [OtherDevice(SPACE, times, ALL)])
    warmed = strategies.make("surrogate", SPACE, hints=found)
    numbers = [number for number in range(0, len(SPACE), 50) if not np.isnan(TIMES[number])]
    for number in numbers[: known + 1 - known % 2]:
        warmed.tell(number, float(TIMES[number]))
    assert len(warmed.results) % 2
    cold = strategies.make("surrogate", SPACE)
    cold.results = dict(warmed.results)
    assert (warmed.ask() == cold.ask()) == is_alone


def test_with_hints_too_every_configuration_is_proposed_once_whatever_others_tell(monkeypatch):
    from tuner.strategies import surrogate

    monkeypatch.setattr(surrogate, "CANDIDATES", 20)
    small = TuningSpace.product({"x": [1, 2, 3, 5, 7], "y": [1, 2, 4], "z": [False, True]})
    rng = np.random.default_rng(0)
    strategy = strategies.make("surrogate", small, hints=Hints(rng.random((2, 30)), np.array([0.5, 0.5])))
    for step in range(28):
        number = strategy.ask()
        assert number not in strategy.results
        strategy.tell(number, None if step % 3 == 0 else 1.0 + number)
        if step in (5, 20):
            strategy.tell(int(strategy.unknown()[-1]), 50.0)  # by somebody else
    assert strategy.ask() is None
