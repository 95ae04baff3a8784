"""What holds for every strategy, over the registry: a new one is tested without another line."""

import dataclasses
import random

import pytest

from nas.strategies.contract import NothingLeft, Result, Started, generator
from nas.strategies.registry import make, strategies
from searchspace.space.space import Space

SAMPLERS = ["TPESampler", "NSGAIISampler", "NSGAIIISampler", "RandomSampler", "QMCSampler", "BruteForceSampler"]
ARMS = [pytest.param(name, {}, id=name) for name in strategies() if name not in ("optuna", "auto")]
ARMS += [pytest.param("optuna", {"sampler": sampler}, id=sampler) for sampler in SAMPLERS]
ARMS += [pytest.param("optuna", {"sampler": "NSGAIISampler", "population_size": 6}, id="NSGAIISampler-6")]
SLOW = ("optuna", "model", "parameters")  # a proposal takes 1 to 40 ms
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
    results = toy.search(first, score, 32, fails=lambda point: point.architecture.hash.startswith("000"))
    better = [dataclasses.replace(r, rung=1, values=tuple(v / 2 for v in r.values)) for r in results[::9] if r.values]
    later = [*better[1:], dataclasses.replace(better[0], values=None)]
    for result in later:
        first.tell(result)
    again = make(name, space, 7, objectives, **options)
    for result in [*results, *later]:
        again.tell(result)
    assert architectures(first, range(32, 36)) == architectures(again, range(32, 36))


def searched(strategy, space, score, budget):
    """A log of a search with workers: [(method, argument)]. The results come late, some trials fail, one has none."""
    log, running = [], []

    def call(method, argument):
        getattr(strategy, method)(argument)
        log.append((method, argument))

    for number in range(budget):
        point = strategy.ask(number)[0].point
        call("start", Started(number, point))
        running.append((number, point))
        if len(running) == 4:
            number, point = running.pop(number % 3)
            failed = number % 7 == 3
            call("tell", Result(number, 0, 10, point, None if failed else score(point), "too slow" if failed else None))
    return log


def hashes(proposals):
    return [proposal.point.architecture.hash for proposal in proposals]


def known(log):
    return {argument.point.architecture.hash for _, argument in log}


@each_strategy
def test_three_hundred_asks_give_as_many_new_points_at_once_and_one_by_one(name, options, space, toy):
    count = 30 if name in SLOW else 300
    once, singly = make(name, space, 5, 2, **options), make(name, space, 5, 2, **options)
    log = searched(once, space, toy.leading_and_trailing, 40)
    for method, argument in log:
        getattr(singly, method)(argument)
    batch = hashes(once.ask(40, count))
    assert len(set(batch)) == count
    assert not known(log) & set(batch)
    found = []
    for number in range(40, 40 + count):
        (proposal,) = singly.ask(number)
        singly.start(Started(number, proposal.point))
        found.append(proposal)
    assert hashes(found) == batch


@each_strategy
def test_rebuilt_from_a_log_with_pending_trials_it_proposes_the_same(name, options, space, toy):
    first, again = make(name, space, 9, 2, **options), make(name, space, 9, 2, **options)
    for method, argument in searched(first, space, toy.leading_and_trailing, 30):
        getattr(again, method)(argument)
    assert hashes(first.ask(30, 5)) == hashes(again.ask(30, 5)) == hashes(first.ask(30, 5)), "asking changed something"


@each_strategy
def test_a_batch_repeats_nothing_that_was_told_even_if_no_trial_was_started(name, options, toy):
    space = toy.BitSpace(6)
    strategy = make(name, space, 3, 1, **options)
    told = set()
    for number in range(20):
        (proposal,) = strategy.ask(number)
        told |= set(hashes([proposal]))
        strategy.tell(Result(number, 0, 1, proposal.point, toy.ones(proposal.point)))
    batch = hashes(strategy.ask(20, 12))
    assert len(set(batch)) == 12
    assert not told & set(batch)


@pytest.mark.parametrize("name, options", [arm for arm in ARMS if arm.id != "BruteForceSampler"])
def test_a_small_space_is_proposed_whole_and_then_there_is_nothing_left(name, options, toy):
    space = toy.BitSpace(4)
    strategy = make(name, space, 1, 1, **options)
    proposals = strategy.ask(0, 20)
    assert len(set(hashes(proposals))) == len(proposals) == 16
    for number, proposal in enumerate(proposals):
        strategy.start(Started(number, proposal.point))
    with pytest.raises(NothingLeft, match=r"were tried before \(16 were\): widen the space"):
        strategy.ask(16)


@each_strategy
def test_asks_for_one_proposal_at_least(name, options, space):
    with pytest.raises(ValueError, match="count must be at least 1, but got 0"):
        make(name, space, 0, 1, **options).ask(0, 0)


@each_strategy
def test_it_can_evaluate_any_point_before_it_proposes_it(name, options, space, toy):
    def evaluate(point):
        return None, float(point.architecture.hash.count("1"))

    registered = make(name, space, 0, 2, evaluate, **options)
    assert registered.evaluate(space.point([True] * 12)) == (None, 12.0)
    assert make(name, space, 0, 2, **options).evaluate is None


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


def test_the_random_numbers_of_a_proposal_never_change():
    assert generator(0, 0, 0).randrange(10**9) == 559678818
    assert len({generator(*key).random() for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]}) == 4


@pytest.mark.parametrize("name", [name for name in strategies() if name not in ("optuna", "auto")])
def test_it_goes_on_in_a_space_that_has_grown(name, toy):
    small, large = Space.parse(SPACE), Space.parse(SPACE.replace("[1, 3]", "[1, 5]").replace("[3, 7]", "[3, 7, 15]"))
    results = toy.search(make(name, small, 4, 1), lambda point: (float(len(str(point.choices))),), 14)
    strategy = make(name, large, 4, 1)
    for result in results:
        point = large.locate(result.point.architecture)
        strategy.start(Started(result.number, point))
        strategy.tell(dataclasses.replace(result, point=point))
    batch = [proposal.point for proposal in strategy.ask(14, 8)]
    assert all(large.contains(point.architecture) for point in batch)
    assert not {point.architecture.hash for point in batch} & {each.point.architecture.hash for each in results}


LEARNING = [name for name in strategies() if name not in ("optuna", "auto", "random", "parameters")]


@pytest.mark.parametrize("name", LEARNING)
def test_the_known_optimum_of_a_small_space_is_found(name, toy):
    results = toy.search(make(name, toy.BitSpace(10), 6, 1), toy.ones, 120)
    assert min(result.values for result in results) == (0.0,), "one of 1,024 points; the hill is bumpy"


MANY = 30_000


@pytest.fixture(scope="module")
def many(toy):
    """100,000 results of distinct points; one in seven failed."""
    space, rng, points = toy.BitSpace(20), random.Random(0), {}
    while len(points) < MANY:
        point = space.sample(rng)
        points[point.architecture.hash] = point
    results = []
    for number, point in enumerate(points.values()):
        failed = number % 7 == 3
        results.append(Result(number, 0, 1, point, None if failed else toy.ones(point), "too slow" if failed else None))
    return space, results, set(points)


@pytest.mark.parametrize("name", [name for name in strategies() if name not in ("optuna", "auto")])
def test_it_goes_on_after_thirty_thousand_results(name, many):
    """Not of Optuna: its study then needs 700 MB, and TPE and GP read all of them for each proposal.

    All results stay in the population of `tournament`; else each leaves after a tournament, which takes 50 us.
    """
    space, results, known = many
    strategy = make(name, space, 8, 1, **({"population": MANY} if name == "tournament" else {}))
    for result in results:
        strategy.tell(result)
    batch = hashes(strategy.ask(MANY, 4))
    assert len(set(batch)) == 4
    assert not known & set(batch)
    assert hashes(strategy.ask(MANY, 4)) == batch, "asking changed something"
