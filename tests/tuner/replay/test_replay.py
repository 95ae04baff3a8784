"""A replay is what a live run would be, and scores are by the exact expectation of random search."""

import gzip
import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tuner import strategies
from tuner.replay.recorded import Recorded, limited, load, synthetic
from tuner.replay.replay import Run, expected_random, fraction_of_optimum, replay, score, settle
from tuner.space import TuningSpace

SPACE = TuningSpace.product({"x": [1, 2, 3], "y": [1, 2]})
TIMES = np.array([3.0, np.nan, 1.0, 2.0, 5.0, 4.0])
TINY = Recorded("tiny", SPACE, TIMES, np.stack([TIMES, TIMES + 1], axis=1), np.full(6, 10.0))


def test_the_expected_fastest_of_random_draws_is_the_mean_over_all_of_them():
    times = np.where(np.isnan(TIMES), np.inf, TIMES)
    for count in range(1, 7):
        best = np.array([min(draw) for draw in itertools.combinations(times, count)])
        assert expected_random(TINY, count) == pytest.approx(best[np.isfinite(best)].mean())


def test_a_failed_configuration_costs_an_evaluation_and_its_compile_time():
    run = replay(TINY, "exhaustive", 4)
    assert run.order == (0, 1, 2, 3)
    assert np.isnan(run.times[1])
    assert run.best().tolist() == [3, 3, 1, 1]
    assert run.compiling == 40
    assert run.chosen == 2
    assert fraction_of_optimum(TINY, run, 2) == pytest.approx(1 / 3)
    assert fraction_of_optimum(TINY, run, 99) == 1


def test_nothing_is_measured_twice_and_a_run_ends_when_all_is_known():
    run = replay(TINY, "random", 100)
    assert sorted(run.order) == list(range(6))


def test_a_run_over_the_whole_space_scores_as_the_optimum():
    runs = [replay(TINY, "random", 100, seed=seed) for seed in range(2)]
    assert score(TINY, runs, 100) == (1, 0)


def test_in_noisy_mode_a_measurement_is_one_of_the_samples():
    runs = [replay(TINY, "exhaustive", 6, seed, noisy=True) for seed in range(20)]
    seen = {float(run.seen[0]) for run in runs}
    assert seen == {3.0, 4.0}
    assert all(run.times[0] == 3 for run in runs)


def test_what_serves_is_decided_by_timing_the_finalists_again():
    recorded = synthetic(0)
    run = replay(recorded, "random", 60, noisy=True)
    chosen = settle(recorded, run)
    assert recorded.times[chosen] <= 1.03 * run.best()[-1]
    assert chosen in run.order
    # one sample is lucky by far: a search would end with it, a second look does not
    samples = np.full((6, 50), 2.0)
    samples[0], samples[1], samples[1, 0] = 3.0, 2.5, 0.1
    lucky = Recorded("lucky", SPACE, samples.mean(1), samples, np.zeros(6))
    seen = np.array([3.0, 0.1, 2.0])
    assert settle(lucky, Run((0, 1, 2), lucky.times[:3], seen, 1, 0.0, 0.0)) == 2


def test_nothing_valid_serves_nothing():
    assert settle(TINY, Run((1,), TIMES[[1]], TIMES[[1]], None, 0.0, 0.0)) is None


def test_a_strategy_may_be_given_by_what_makes_it():
    run = replay(TINY, _Backwards, 6)
    assert run.order == (5, 4, 3, 2, 1, 0)
    assert 0 < run.seconds <= run.longest


class _Backwards(strategies.Strategy):
    def propose(self) -> int:
        return int(self.unknown()[-1])


def test_a_configuration_that_is_not_in_the_space_is_an_error(monkeypatch):
    class Wrong(strategies.Strategy):
        def propose(self) -> int:
            return 17

    monkeypatch.setattr(strategies, "make", lambda name, *arguments: Wrong(*arguments))
    with pytest.raises(ValueError, match="asked for configuration 17, but there are 6"):
        replay(TINY, "wrong", 3)


def test_before_anything_valid_was_found_there_is_no_fraction_of_the_optimum():
    run = Run((1,), TIMES[[1]], TIMES[[1]], None, 0.0, 0.0)
    assert fraction_of_optimum(TINY, run, 1) == 0


def test_a_recorded_file_is_read_with_its_failures(tmp_path):
    cache = {
        "1,a": {"x": 1, "y": "a", "time": 2.5, "times": [2.0, 3.0], "compile_time": 7.0},
        "2,a": {"x": 2, "y": "a", "time": "RuntimeFailedConfig", "compile_time": 9.0},
        "2,b": {"x": 2, "y": "b", "time": 1.5, "times": [1.5, 1.5, 1.5], "compile_time": 1.0},
    }
    data = {"tune_params_keys": ["x", "y"], "tune_params": {"x": [1, 2], "y": ["a", "b"]}, "cache": cache}
    path = tmp_path / "kernel_device.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    recorded = load(path)
    assert recorded.name == "kernel_device"
    assert recorded.space.configuration(2) == {"x": 2, "y": "b"}
    np.testing.assert_array_equal(recorded.times, [2.5, np.nan, 1.5])
    assert recorded.samples.shape == (3, 2)
    assert recorded.best == 1.5


def whole(**changes):
    """The text of a recorded space of one configuration."""
    known = {"tune_params_keys": ["x"], "tune_params": {"x": [1]}, "cache": {"1": {"x": 1, "time": 1.0}}}
    return json.dumps(known | changes)


NO_SPACES = {
    "not gzip": "",
    "a list": "[1]",
    "no parameters": '{"cache": {}}',
    "deep": "[" * 100_000,
    "large": " " * (65 * 2**20),
    "no configurations": whole(cache={}),
    "configurations in a list": whole(cache=[1]),
    "a name for the values": whole(tune_params={"x": "1"}),
    "times of many lengths": whole(cache={"1": {"x": 1, "time": 1.0, "times": [[1], 2]}}),
    "a huge number": whole(cache={"1": {"x": 1, "time": 10**400}}),
    "compile time in words": whole(cache={"1": {"x": 1, "time": 1.0, "compile_time": "long"}}),
}


@pytest.mark.parametrize("content", NO_SPACES.values(), ids=NO_SPACES)
def test_a_file_that_is_none_is_named(tmp_path, content):
    path = tmp_path / "broken.json.gz"
    path.write_bytes(gzip.compress(content.encode()) if content else b"not gzip")
    with pytest.raises(ValueError, match=r"broken.json.gz is not a recorded tuning space"):
        load(path)


def test_synthetic_spaces_have_failures_few_optima_and_noise():
    for seed in range(5):
        recorded = synthetic(seed)
        valid = recorded.times[~np.isnan(recorded.times)]
        assert 0.9 < len(valid) / len(recorded.space) < 1
        assert (valid < 1.05 * recorded.best).mean() < 0.03
        assert np.median(valid) > 1.8 * recorded.best
        assert recorded.samples.shape == (len(recorded.space), 8)


@pytest.mark.parametrize("share", [0.45, 0.78])
def test_a_resource_that_runs_out_fails_about_the_given_share(share):
    recorded = synthetic(1)
    found = [limited(recorded, share, seed) for seed in range(8)]

    failed = [np.isnan(each.times) for each in found]
    assert np.mean(failed) == pytest.approx(share, abs=0.08)
    assert any((one != failed[0]).any() for one in failed), "every seed has a rule of its own"
    valid = ~failed[0] & ~np.isnan(recorded.times)
    assert (found[0].times[valid] == recorded.times[valid]).all()
    assert found[0].best >= recorded.best


@pytest.fixture(scope="module")
def convolution():
    folder = Path(os.environ.get("NAS_DATA", Path(__file__).parents[3] / "shared/data")) / "kernel_tuning"
    if not folder.is_dir():
        pytest.skip(f"there are no recorded tuning spaces in {folder}; set NAS_DATA")
    return load(folder / "convolution_A100.json.gz")


def test_the_recorded_spaces_are_read(convolution):
    assert (len(convolution.space), int(np.isnan(convolution.times).sum())) == (4362, 161)
    assert convolution.samples.shape[1] == 32


def test_random_search_scores_zero_on_a_recorded_space_too(convolution):
    runs = [replay(convolution, "random", 60, seed) for seed in range(150)]
    for evaluations in (25, 60):
        mean, error = score(convolution, runs, evaluations)
        assert abs(mean) <= 2 * error
