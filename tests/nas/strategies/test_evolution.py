"""What the evolutionary strategies do beyond what every strategy does."""

from statistics import fmean

import pytest

from nas import pareto
from nas.strategies.contract import Result
from nas.strategies.registry import make

EVOLUTION = ["aging_evolution", "nsga2"]
SEEDS = range(6)


@pytest.mark.parametrize("name", EVOLUTION)
def test_finds_better_than_random_with_one_objective(name, toy):
    def best(strategy, seed):
        return min(r.values[0] for r in toy.search(make(strategy, toy.BitSpace(24), seed, 1), toy.ones, 120))

    assert fmean(best(name, seed) for seed in SEEDS) < fmean(best("random", seed) for seed in SEEDS) - 4


@pytest.mark.parametrize("name", EVOLUTION)
def test_finds_a_better_front_than_random_with_two_objectives(name, toy):
    def volume(strategy, seed):
        results = toy.search(make(strategy, toy.BitSpace(24), seed, 2), toy.leading_and_trailing, 120)
        return pareto.hypervolume([r.values for r in results], (25.0, 25.0))

    assert fmean(volume(name, seed) for seed in SEEDS) > 1.5 * fmean(volume("random", seed) for seed in SEEDS)


@pytest.mark.parametrize("name", EVOLUTION)
def test_parents_are_told_trials_that_live(name, space, toy):
    strategy = make(name, space, 0, 2, population=10, start=5)
    results = toy.search(strategy, toy.leading_and_trailing, 40)
    number = next(iter(member.number for member in _members(strategy)))
    strategy.tell(Result(number, 1, 1, results[number].point, None))
    parents = {parent for n in range(200) for parent in strategy.ask(100 + n)[0].parents}
    assert parents <= {result.number for result in results} - {number}
    assert parents


@pytest.mark.parametrize("name", EVOLUTION)
def test_more_attempts_go_further_away(name, toy):
    space = toy.BitSpace(24)
    strategy = make(name, space, 0, 1, population=2, start=2)
    for number in range(2):
        strategy.tell(Result(number, 0, 1, space.point([False] * 24), (1.0,)))

    def changed(attempt):
        return fmean(strategy.ask(n, 1, attempt)[0].point.architecture.hash.count("1") for n in range(40))

    assert changed(0) <= 1 < changed(12) - 2


def test_aging_evolution_forgets_the_oldest_however_good(space):
    strategy = make("aging_evolution", space, 0, 1, population=3, start=1)
    for number, value in enumerate([0.0, 5.0, 6.0, 7.0]):
        strategy.tell(Result(number, 0, 1, space.point([number % 2 == 0] * 12), (value,)))
    assert {parent for n in range(30) for parent in strategy.ask(10 + n)[0].parents} == {1}


def test_aging_evolution_takes_a_later_rung_of_a_living_trial_alone(space):
    strategy = make("aging_evolution", space, 0, 1, population=2, start=1)
    point = space.point([True] * 12)
    for number, value in enumerate([9.0, 5.0, 6.0]):
        strategy.tell(Result(number, 0, 1, point, (value,)))
    strategy.tell(Result(2, 1, 1, point, (1.0,)))
    strategy.tell(Result(0, 1, 1, point, (0.0,)))  # aged out
    assert [(m.number, m.values) for m in strategy.members.values()] == [(1, (5.0,)), (2, (1.0,))]


def test_nsga2_keeps_exactly_the_best_fronts(space, toy):
    strategy = make("nsga2", space, 4, 2, population=12, start=6)
    results = toy.search(strategy, toy.leading_and_trailing, 60)
    kept = {member.number for member in strategy.members}
    assert len(kept) == 12
    front = {results[i].number for i in pareto.front([r.values for r in results])}
    distinct = {results[n].values for n in front}
    assert {strategy.members[0].values} <= distinct
    for member in strategy.members:
        dominators = [r for r in results if pareto.dominates(r.values, member.values)]
        assert all(r.number in kept or len(dominators) >= 12 for r in dominators)


def test_nsga2_turns_away_only_whom_sorting_would_drop(space, toy):
    strategy, turned_away = make("nsga2", space, 4, 2, population=8, start=4), 0
    for result in toy.search(make("random", space, 1, 2), toy.leading_and_trailing, 120):
        values = [*(member.values for member in strategy.members), result.values]
        strategy.tell(result)
        if len(values) == 9 and result.number not in {member.number for member in strategy.members}:
            turned_away += 1
            assert 8 not in pareto.order(values)[:8]
    assert turned_away > 20


def test_nsga2_replaces_the_earlier_rung_of_a_trial(space):
    strategy = make("nsga2", space, 0, 2, population=4, start=2)
    point = space.point([True] * 12)
    strategy.tell(Result(3, 0, 1, point, (5.0, 5.0)))
    strategy.tell(Result(3, 1, 1, point, (2.0, 6.0)))
    assert [(m.number, m.values) for m in strategy.members] == [(3, (2.0, 6.0))]


def _members(strategy):
    members = strategy.members
    return members.values() if isinstance(members, dict) else members
