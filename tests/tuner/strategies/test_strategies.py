"""What every tuning strategy promises, and what the default is worth."""

import subprocess
import sys

import numpy as np
import pytest

from tuner import strategies
from tuner.replay.recorded import limited, synthetic
from tuner.replay.replay import expected_random, fraction_of_optimum, replay, score
from tuner.space import TuningSpace
from tuner.strategies.local_search import LocalSearch
from tuner.strategies.surrogate import TURN, Surrogate, modelled, ranked

NAMES = strategies.STRATEGIES.names()
RECORDED = synthetic(0)
SMALL = TuningSpace.product({"x": [1, 2, 3, 5], "y": [1, 2, 4], "z": [False, True]}, [lambda c: c["x"] * c["y"] < 20])


def milliseconds(configuration):
    """Fails for a third of the space."""
    x, y = configuration["x"], configuration["y"]
    return None if configuration["z"] and y == 2 else abs(x - 3) + 2 * abs(y - 2) + 1.0


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_is_proposed_once_and_then_none(name):
    strategy = strategies.make(name, SMALL, seed=3)
    order = []
    while (number := strategy.ask()) is not None:
        order.append(number)
        strategy.tell(number, milliseconds(SMALL.configuration(number)))
    assert sorted(order) == list(range(len(SMALL)))
    assert SMALL.configuration(strategy.best)["x"] == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_everything(name):
    one, again, other = (replay(RECORDED, name, 30, seed) for seed in (1, 1, 2))
    assert one.order == again.order
    assert name == "exhaustive" or one.order != other.order


@pytest.mark.parametrize("name", NAMES)
def test_what_is_to_come_first_comes_first_and_what_is_known_is_not_asked_for(name):
    strategy = strategies.make(name, SMALL, seed=0, first=(5, 2, 5, 7))
    strategy.tell(2, 1.5)
    asked = [strategy.ask() for _ in range(1)]
    strategy.tell(5, 2.0)
    assert asked == [5]
    assert strategy.ask() == 7


def test_what_will_be_proposed_is_known_at_the_start_and_asking_changes_nothing():
    strategy, other = (strategies.make("surrogate", RECORDED.space, seed=2, first=(4,)) for _ in range(2))
    asked = []
    for number in range(12):
        asked.append(strategy.ask())
        if number == 1:
            later = strategy.upcoming(asked[-1])
        strategy.tell(asked[-1], 1.0 + number)
        assert asked[-1] == other.ask()
        other.tell(asked[-1], 1.0 + number)

    assert asked[0] == 4 and later == asked[2:10]
    assert strategy.upcoming(strategy.ask()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_space_where_everything_fails_is_gone_through(name):
    strategy = strategies.make(name, SMALL, seed=0)
    for _ in range(len(SMALL)):
        strategy.tell(strategy.ask(), None)
    assert strategy.ask() is None
    assert strategy.best is None


def test_random_search_scores_zero_within_two_standard_errors():
    for evaluations in (5, 20, 60):
        runs = [replay(RECORDED, "random", evaluations, seed) for seed in range(300)]
        mean, error = score(RECORDED, runs, evaluations)
        assert abs(mean) <= 2 * error


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_finds_far_better_configurations_than_random_search(seed):
    recorded = synthetic(seed)
    found = [fraction_of_optimum(recorded, replay(recorded, "surrogate", 60, run), 60) for run in range(4)]
    assert np.mean(found) > 0.9
    assert np.mean(found) > recorded.best / expected_random(recorded, 60) + 0.05


def test_the_default_begins_with_powers_of_two_and_later_doubts_them():
    space = RECORDED.space
    best = int(np.argmax(space.uneven + space.features[:, 0]))  # an uneven one
    strategy = strategies.make("surrogate", space, seed=1)
    order = []
    for _ in range(56):
        order.append(strategy.ask())
        strategy.tell(order[-1], 1.0 + float(((space.features[order[-1]] - space.features[best]) ** 2).sum()))

    assert space.uneven[order[:10]].mean() < 0.5 * space.uneven.mean()
    assert strategy.without is not None and strategy.without.results is strategy.results
    assert best in order


def test_the_default_looks_where_it_knows_less_while_nothing_better_is_found(monkeypatch):
    space = TuningSpace.product({"x": [16 * n for n in range(1, 17)], "y": [1, 2, 4, 8, 16], "z": [1, 2, 3, 4]})
    rng = np.random.default_rng(0)
    times = 1 + np.abs(space.features - space.features[100]).sum(1) + 0.3 * rng.random(len(space))
    known = sorted(rng.choice(len(space), 8 * TURN, replace=False), key=lambda each: times[each])

    def asked():
        """The proposal after all results, the fastest of which came first, and how little is known of it."""
        strategy = Surrogate(space, 0)
        for number in known:
            strategy.tell(number, times[number])
        found = strategy.ask()
        mean, deviation = strategy.process.predict(known, modelled(times[known], 0.5))
        return mean[found], deviation[found]

    near = asked()
    monkeypatch.setattr("tuner.strategies.surrogate.LONG", len(known))
    far = asked()
    assert far[1] > 1.05 * near[1]
    assert far[0] - 2.5 * far[1] < near[0] - 2.5 * near[1]


def test_the_default_learns_which_configurations_lack_a_resource():
    tried, random, failed = [], [], []
    for seed in range(6):
        recorded = limited(synthetic(seed % 2), 0.78, seed)
        run = replay(recorded, "surrogate", 40, seed)
        failed.append(np.isnan(run.times[16:]).mean())
        tried.append(fraction_of_optimum(recorded, run, 16))
        random.append(fraction_of_optimum(recorded, replay(recorded, "random", 16, seed), 16))
    assert np.mean(failed) < 0.5, "78 % fail at random"
    assert np.mean(tried) > np.mean(random)


def test_the_chance_to_run_follows_from_what_ran_and_what_failed():
    pytest.importorskip("scipy")
    from tuner.strategies._feasibility import Feasibility

    features = np.linspace(0, 3, 7)[:, None]
    chances = Feasibility(features).chances([0, 6], np.array([True, False]))
    assert 0 < chances[0] < 0.2 and chances[-1] > 0.9
    assert (np.diff(chances) > 0).all()


def test_a_large_space_is_modelled_by_a_part_of_it(monkeypatch):
    from tuner.strategies import surrogate

    monkeypatch.setattr(surrogate, "CANDIDATES", 300)
    strategy = strategies.make("surrogate", RECORDED.space, seed=0)
    strategy.tell(len(RECORDED.space) - 1, 50.0)  # told by somebody else
    for step in range(60):
        number = strategy.ask()
        assert number not in strategy.results
        value = RECORDED.times[number]
        strategy.tell(number, None if np.isnan(value) else float(value))
        if step == 30:
            unknown = int(strategy.unknown()[0])
            strategy.tell(unknown, 80.0)  # in the middle, perhaps outside of the part
    assert RECORDED.best / strategy.results[strategy.best] > 0.7


def test_an_unknown_strategy_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"No tuning strategy is called 'surogate'\. Did you mean 'surrogate'"):
        strategies.make("surogate", SMALL)


def test_without_scipy_another_strategy_takes_the_place_of_the_default(monkeypatch):
    for name in ("scipy", "scipy.linalg", "scipy.optimize", "scipy.special"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "tuner.strategies._gaussian_process", raising=False)  # it imported them before

    assert isinstance(strategies.make_or_fall_back(None, SMALL), LocalSearch)
    with pytest.raises(ImportError):
        strategies.make_or_fall_back("surrogate", SMALL)


def test_options_are_checked_by_the_signature():
    with pytest.raises(ValueError, match="tuning strategy 'random' has no option 'depth'"):
        strategies.make("random", SMALL, depth=3)


def test_listing_the_strategies_loads_none_of_their_libraries(root):
    code = "import sys; from tuner.strategies import STRATEGIES; print(STRATEGIES.names()); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    names, modules = done.stdout.splitlines()

    assert "optuna" in names and "warm" not in names
    assert not {"scipy", "optuna", "torch", "pydantic"} & set(modules.split())


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 1.0, 2.0, 5.0, 2.0, 1.0], list(range(9, 0, -1))], ids=len)
def test_ranks_are_those_of_scipy(values):
    stats = pytest.importorskip("scipy.stats")
    assert ranked(np.array(values, dtype=float)).tolist() == stats.rankdata(values).tolist()
