"""What the evolutionary strategies do beyond what every strategy does."""

import random
from statistics import fmean

import numpy as np
import pytest

from nas import pareto
from nas.strategies.contract import Result
from nas.strategies.reference_directions import by_niche, reference_directions
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


def test_the_first_children_have_many_parents(toy):
    strategy = make("aging_evolution", toy.BitSpace(24), 0, 2, start=20)
    toy.search(strategy, toy.leading_and_trailing, 20)
    parents = [strategy.ask(20 + n)[0].parents[0] for n in range(100)]
    assert len(set(parents)) >= 6
    assert max(map(parents.count, parents)) <= 40


def test_with_three_objectives_parents_are_not_the_ends_of_the_front(toy):
    def ends(niches):
        strategy = make("nsga2", toy.BitSpace(16), 0, 3, population=30, start=30, niches=niches)
        rng = random.Random(1)
        for number in range(60):  # on a part of a sphere, all on one front
            point = strategy.space.sample(rng)
            raw = [abs(rng.gauss(0, 1)) for _ in range(3)]
            length = sum(each**2 for each in raw) ** 0.5
            strategy.tell(Result(number, 0, 1, point, tuple(1 - each / length for each in raw)))
        values = {member.number: member.values for member in strategy.members}
        extremes = {min(values, key=lambda number: values[number][column]) for column in range(3)}
        parents = [strategy.ask(60 + n)[0].parents[0] for n in range(200)]
        return sum(parent in extremes for parent in parents) / 200

    assert ends("directions") < 0.5 * ends("crowding")


def test_reference_directions_are_spread_evenly():
    found = reference_directions(3, 50)
    assert len(found) == 55 and np.allclose(found.sum(1), 1)
    assert len(np.unique(found.round(6), axis=0)) == 55
    assert reference_directions(1, 50).tolist() == [[1.0]]


def test_members_of_crowded_directions_come_last():
    values = [(1.0, 0.0, 0.0), (0.99, 0.01, 0.01), (0.98, 0.02, 0.02), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    order = by_niche(values, np.zeros(5, dtype=int), reference_directions(3, 3)).tolist()
    assert set(order[3:]) <= {0, 1, 2}


@pytest.mark.parametrize("worst", [1e155, 1e300, 1.7e308])
def test_a_diverged_member_that_is_finite_is_the_last_and_leaves_the_others_as_they_are(worst):
    values = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [worst, 1.0, 2.0]])
    directions = reference_directions(3, 6)
    alone = by_niche(values[:4], np.zeros(4, dtype=int), directions).tolist()
    assert by_niche(values, np.array([0, 0, 0, 0, 1]), directions).tolist() == [*alone, 4]
    both = by_niche(np.array([[-worst, 1.0, 0.0], [worst, 0.0, 0.0]]), np.zeros(2, dtype=int), directions)
    assert sorted(both.tolist()) == [0, 1]
