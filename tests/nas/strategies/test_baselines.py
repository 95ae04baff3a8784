"""Local search, parameter-count ranking, and tournament selection with seeding."""

from statistics import fmean

import pytest

from nas import pareto
from nas.strategies.contract import Result
from nas.strategies.parameters import non_embedding
from nas.strategies.registry import make
from searchspace.space.space import Space

SPACE = """
kind: decoder
width: !choice [32, 64, 128]
vocabulary: 1000
body:
  - residual: {of: {feed_forward: {expand: !int [1, 8]}}}
"""


@pytest.mark.parametrize("name", ["local_search", "tournament"])
@pytest.mark.parametrize("objectives", [1, 2])
def test_finds_better_than_random(name, objectives, toy):
    score = [toy.ones, toy.leading_and_trailing][objectives - 1]

    def volume(strategy, seed):
        results = toy.search(make(strategy, toy.BitSpace(20), seed, objectives), score, 100)
        return pareto.hypervolume([result.values for result in results], (40.0,) * objectives)

    assert fmean(volume(name, seed) for seed in range(4)) > fmean(volume("random", seed) for seed in range(4))


def test_local_search_starts_from_points_of_the_front(space, toy):
    strategy = make("local_search", space, 0, 2, start=10, restart=0.0)
    results = toy.search(strategy, toy.leading_and_trailing, 40)
    front = {results[index].values for index in pareto.front([result.values for result in results])}
    starts = {strategy.ask(40 + n)[0].parents[0] for n in range(50)}
    assert {results[number].values for number in starts} <= front


def test_the_largest_of_some_random_models_is_proposed():
    space = Space.parse(SPACE)
    ranked, plain = make("parameters", space, 0, 1), make("random", space, 0, 1)
    sizes = [[non_embedding(each.ask(n)[0].point) for n in range(20)] for each in (ranked, plain)]
    assert fmean(sizes[0]) > 1.5 * fmean(sizes[1])
    small, large = (
        non_embedding(space.realise(lambda path, hole, v=v: v[path == "width"])) for v in ((2, 32), (2, 64))
    )
    assert 3 < large / small < 5, "they do not count the table of tokens"


def test_a_seeded_tournament_begins_with_mutations_of_the_seed(space):
    seed = space.point([True] * 12)
    strategy = make("tournament", space, 0, 1, start=10)
    assert strategy.ask(0)[0].operator == "random"
    strategy.tell(Result(0, 0, 1, seed, (3.0,)))
    children = [strategy.ask(1 + n)[0] for n in range(20)]
    assert {child.parents for child in children} == {(0,)}
    assert all(child.point.architecture.hash.count("0") <= 6 for child in children)
    unseeded = make("tournament", space, 0, 1, start=10, seeded=False)
    unseeded.tell(Result(0, 0, 1, seed, (3.0,)))
    assert unseeded.ask(1)[0].operator == "random"


def test_the_worst_of_a_tournament_leaves(space, toy):
    strategy = make("tournament", space, 0, 1, population=10, start=5, sample=10)
    results = toy.search(strategy, toy.ones, 40)
    kept = sorted(results[number].values[0] for number in strategy.members)
    assert kept == sorted(result.values[0] for result in results)[:10]
