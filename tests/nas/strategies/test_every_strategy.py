"""What holds for every strategy, over the registry: a new one is tested with no line added."""

import dataclasses

import pytest

from nas.strategies.contract import NothingLeft, Result, generator
from nas.strategies.registry import make, strategies
from searchspace.space.space import Space

SAMPLERS = ["TPESampler", "NSGAIISampler", "NSGAIIISampler", "RandomSampler", "QMCSampler", "BruteForceSampler"]
ARMS = [pytest.param(name, {}, id=name) for name in strategies() if name != "optuna"]
ARMS += [pytest.param("optuna", {"sampler": sampler}, id=sampler) for sampler in SAMPLERS]
ARMS += [pytest.param("optuna", {"sampler": "NSGAIISampler", "population_size": 6}, id="NSGAIISampler-6")]
each_strategy = pytest.mark.parametrize("name, options", ARMS)
each_objectives = pytest.mark.parametrize("objectives", [1, 2], ids=["one-objective", "two-objectives"])

SPACE = """
kind: decoder
width: !choice [32, 64]
vocabulary: 256
body:
  - repeat:
      times: !int [1, 3]
      of:
        - residual:
            of: !choice
              - attention: {heads: !choice [2, 4]}
              - convolution: {kernel: !choice [3, 7]}
        - residual:
            of: {feed_forward: {expand: !choice [2, 4]}}
"""


def architectures(strategy, numbers, attempts=(0, 1, 4)):
    return [strategy.ask(n, 1, attempt)[0].point.architecture.hash for n in numbers for attempt in attempts]


@each_objectives
@each_strategy
def test_told_the_same_again_it_proposes_the_same(name, options, objectives, space, toy):
    score = [toy.ones, toy.leading_and_trailing][objectives - 1]
    first = make(name, space, 7, objectives, **options)
    results = toy.search(first, score, 45, fails=lambda point: point.architecture.hash.startswith("000"))
    better = [dataclasses.replace(r, rung=1, values=tuple(v / 2 for v in r.values)) for r in results[::9] if r.values]
    later = [*better[1:], dataclasses.replace(better[0], values=None)]
    for result in later:
        first.tell(result)
    again = make(name, space, 7, objectives, **options)
    for result in [*results, *later]:
        again.tell(result)
    assert architectures(first, range(45, 50)) == architectures(again, range(45, 50))


@each_strategy
def test_asking_leaves_no_trace(name, options, space, toy):
    asked, fresh = (make(name, space, 3, 2, **options) for _ in range(2))
    toy.search(asked, toy.leading_and_trailing, 25)
    for result in toy.search(make(name, space, 3, 2, **options), toy.leading_and_trailing, 25):
        fresh.tell(result)
    before = architectures(asked, [25])
    architectures(asked, range(26, 40))
    assert architectures(asked, [25]) == before == architectures(fresh, [25])


@each_strategy
def test_another_seed_proposes_something_else(name, options, space, toy):
    one, other = (toy.search(make(name, space, seed, 1, **options), toy.ones, 12) for seed in (0, 1))
    assert [r.point.architecture.hash for r in one] != [r.point.architecture.hash for r in other]


@each_strategy
def test_a_known_failure_is_never_proposed_again(name, options, toy):
    space, fails = toy.BitSpace(5), lambda point: point.architecture.hash.count("1") % 2 == 0
    strategy = make(name, space, 11, 1, **options)
    failed = set()
    for number in range(40):
        for attempt in range(3):
            point = strategy.ask(number, 1, attempt)[0].point
            assert point.architecture.hash not in failed
        if fails(point):
            failed.add(point.architecture.hash)
        strategy.tell(Result(number, 0, 1, point, None if fails(point) else toy.ones(point)))
    assert failed


@each_strategy
def test_a_value_that_is_not_finite_is_a_failure(name, options, space):
    strategy = make(name, space, 0, 1, **options)
    point = strategy.ask(0)[0].point
    strategy.tell(Result(0, 0, 1, point, (float("nan"),)))
    assert strategy.ask(0)[0].point.architecture.hash != point.architecture.hash


@pytest.mark.parametrize("name", [name for name in strategies() if name != "optuna"])
def test_says_so_when_everything_is_known_to_fail(name, toy):
    space = toy.BitSpace(1)
    strategy = make(name, space, 0, 1)
    for number, bit in enumerate([False, True]):
        strategy.tell(Result(number, 0, 1, space.point([bit]), None))
    with pytest.raises(NothingLeft, match=r"known to fail \(2 are\)"):
        strategy.ask(2)


@each_strategy
def test_a_trial_outside_the_space_is_no_parent(name, options, space, toy):
    strategy = make(name, space, 5, 1, **options)
    strategy.tell(Result(1000, 0, 1, None, (0.0,)))
    strategy.tell(Result(1001, 0, 1, None, None))
    toy.search(strategy, toy.ones, 30)
    assert all(1000 not in strategy.ask(30 + n)[0].parents for n in range(10))


@each_strategy
def test_searches_a_real_space(name, options, toy):
    space = Space.parse(SPACE)
    strategy = make(name, space, 2, 1, **options)
    results = toy.search(strategy, lambda point: (float(len(str(point.choices))),), 24)
    assert all(space.contains(result.point.architecture) for result in results)


def test_the_random_numbers_of_a_proposal_are_the_same_for_ever():
    assert generator(0, 0, 0).randrange(10**9) == 559678818
    assert len({generator(*key).random() for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]}) == 4
