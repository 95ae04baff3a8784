"""The strategy `model`: rows of numbers, features, the process, improvement, and what the search makes of them."""

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from nas import pareto
from nas.strategies import auto
from nas.strategies._surrogate import improvement
from nas.strategies._surrogate.codes import UNSET, Codes
from nas.strategies._surrogate.costs import Costs
from nas.strategies._surrogate.earlier import Lesson, readable
from nas.strategies._surrogate.features import Features
from nas.strategies._surrogate.knowledge import FRESH, MOST
from nas.strategies._surrogate.moves import Moves
from nas.strategies._surrogate.process import Kernel, Posterior, _Parts, fitted
from nas.strategies._surrogate.warp import warp_of
from nas.strategies.contract import Result, Started
from nas.strategies.earlier import Earlier
from nas.strategies.registry import make
from searchspace.errors import SpaceError
from searchspace.space.space import Space

SPACES = sorted((Path(__file__).parents[3] / "examples" / "spaces").glob("*.yaml"))
LAYERS = """
kind: decoder
width: !choice [32, 64]
vocabulary: 64
body:
  - repeat:
      times: !int [2, 5]
      of:
        - residual: {of: {attention: {heads: !choice {each: true, options: [1, 2, 4]}}}}
        - residual: {of: !choice {each: true, options: [gru, feed_forward: {expand: !choice [1, 2, 4]}]}}
"""


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_the_active_holes_of_a_row_are_those_of_its_point(path):
    space = Space.load(path, {"vocabulary": 64})
    codes, rng = Codes(space), np.random.default_rng(0)
    rows = codes.random(6, rng)
    for row, active in zip(rows, codes.active(rows)):
        choices = codes.choices(row)
        try:
            point = space.realise(lambda path, hole, choices=choices: choices[path])
        except SpaceError:
            continue  # too many blocks
        expected = {path for path, on in zip(codes.paths, active) if on}
        assert set(point.choices) == expected
        again = codes.row(point.choices)
        assert np.allclose(np.where(active, row, UNSET), again)


def test_a_move_leaves_values_that_the_holes_have():
    space = Space.parse(LAYERS)
    codes, rng = Codes(space), np.random.default_rng(1)
    children = Moves(codes).children(codes.random(5, rng), 300, rng)
    assert (children >= 0).all() and (children < codes.counts).all()
    assert len(np.unique(children, axis=0)) > 150


def test_a_choice_of_numbers_is_ordered_by_size_however_it_is_written():
    layers = """
    kind: decoder
    width: 64
    vocabulary: 256
    body:
      - repeat: {times: !choice [4, 1, 2], of: {feed_forward: {expand: !choice {each: true, options: [8, 1, 4, 2]}}}}
    """
    space, rng = Space.parse(layers), np.random.default_rng(0)
    codes = Codes(space)
    for seed in range(20):
        point = space.sample(random.Random(seed))
        row = codes.filled(codes.row(point.choices), rng)
        active = codes.active(row[None])[0]
        assert {path for path, on in zip(codes.paths, active) if on} == set(point.choices)
        assert {path: codes.choices(row)[path] for path in point.choices} == point.choices
    times = [codes.choices(np.full(len(codes.paths), number))["body[0].repeat.times"] for number in range(3)]
    assert times == [1, 2, 4]


def test_a_hole_that_opens_gets_the_value_of_the_nearest_layer():
    space = Space.parse(LAYERS)
    codes = Codes(space)
    point = space.realise(lambda path, hole: {"width": 32, "times": 2, "heads": 4}.get(path.rpartition(".")[2], "gru"))
    filled = codes.filled(codes.row(point.choices), np.random.default_rng(0))
    heads = [codes.choices(filled)[path] for path in codes.paths if path.endswith("heads")]
    assert heads == [4] * 5


def test_what_is_learned_at_one_layer_helps_another():
    codes = Codes(Space.parse(LAYERS))
    features, rng = Features(codes), np.random.default_rng(2)
    rows = codes.random(40, rng)
    heads = [column for column, path in enumerate(codes.paths) if path.endswith("heads")]
    depth = codes.place["body[0].repeat.times"]
    rows[:, depth] = 3  # five layers
    rows[:, heads[-1]] = 0  # the last layer never varies
    values = rows[:, heads].sum(1)
    model = Posterior(Kernel(features, fitted(features, features(rows), values, None)), features(rows), values)
    other = rows[:1].copy()
    other[0, heads[-1]] = 2
    (before, after), _ = model.predict(features(np.vstack([rows[:1], other])))
    assert after > before + 0.3


def test_the_slope_of_the_likelihood_is_its_derivative():
    codes = Codes(Space.parse(LAYERS))
    features, rng = Features(codes), np.random.default_rng(3)
    rows = features(codes.random(20, rng), rng.random(20))
    values = rng.standard_normal(20)
    parts, parameters = _Parts(features, rows), Kernel.default(features)
    _, slope = parts.loss(parameters, values)
    for place in range(len(parameters)):
        step = np.zeros(len(parameters))
        step[place] = 1e-5
        change = (parts.loss(parameters + step, values)[0] - parts.loss(parameters - step, values)[0]) / 2e-5
        assert slope[place] == pytest.approx(change, rel=1e-3, abs=1e-5)


def test_results_that_come_later_give_the_same_model():
    codes = Codes(Space.parse(LAYERS))
    features, rng = Features(codes), np.random.default_rng(4)
    rows, values = features(codes.random(12, rng)), rng.standard_normal(12)
    kernel, asked = Kernel(features, Kernel.default(features)), features(codes.random(5, rng))
    at_once = Posterior(kernel, rows, values)
    early = Posterior(kernel, rows.take(range(8)), values[:8])
    later = early.extended(rows.take(range(8, 12)), values[8:])
    assert np.allclose(at_once.predict(asked), later.predict(asked), atol=1e-4)
    supposed = early.extended(rows.take(range(8, 12)), None)
    assert np.allclose(supposed.predict(asked)[0], early.predict(asked)[0], atol=0.2)
    assert (supposed.predict(asked)[1] < early.predict(asked)[1] + 1e-6).all()


@pytest.mark.parametrize("objectives", [1, 2])
def test_the_expected_improvement_is_the_mean_over_draws(objectives):
    rng = np.random.default_rng(5)
    known = np.array([[0.2, 0.7], [0.4, 0.4], [0.8, 0.1]])[:, :objectives]
    mean, deviation = np.array([[0.3, 0.5]])[:, :objectives], np.array([[0.2, 0.1]])[:, :objectives]
    found = improvement.expected(mean, deviation, known, 1.0, rng)[0]
    before = pareto.hypervolume(known, [1.0] * objectives)
    drawn = mean + deviation * rng.standard_normal((4000, objectives))
    gains = [pareto.hypervolume(np.vstack([known, row]), [1.0] * objectives) - before for row in drawn]
    assert found == pytest.approx(np.mean(gains), abs=4 * np.std(gains) / 60)


def test_with_three_objectives_a_dominated_point_improves_nothing():
    rng = np.random.default_rng(6)
    mean = np.array([[0.2, 0.2, 0.2], [0.9, 0.9, 0.9]])
    better, worse = improvement.expected(mean, np.full((2, 3), 1e-9), np.full((1, 3), 0.5), 1.0, rng)
    assert better > 0.01 and worse == 0


def test_a_skewed_value_is_modelled_by_its_logarithm_and_given_back():
    values = np.exp(np.random.default_rng(7).standard_normal(200) * 2)
    warp = warp_of(values)
    assert warp.shift is not None
    back, _ = warp.back(warp.forward(values), np.zeros(200))
    assert np.allclose(back, values)
    assert warp_of(np.linspace(0, 1, 50)).shift is None


def test_finds_a_better_front_than_evolution(toy):
    def volume(name):
        results = toy.search(make(name, toy.BitSpace(24), 3, 2), toy.leading_and_trailing, 60)
        return pareto.hypervolume([result.values for result in results], (25.0, 25.0))

    assert volume("model") > 1.2 * volume("nsga2")


def test_learns_which_architectures_fail(toy):
    def failures(name):
        strategy = make(name, toy.BitSpace(16), 1, 1)
        results = toy.search(strategy, toy.ones, 60, fails=lambda point: point.architecture.hash[3] == "1")
        return sum(result.values is None for result in results[20:])

    assert failures("model") <= 10 < failures("random")


def test_costs_are_computed_for_the_best_candidates(toy):
    space, seen = toy.BitSpace(12), []

    def evaluate(point):
        seen.append(point.architecture.hash)
        return None, float(point.architecture.hash.count("1"))

    strategy = make("model", space, 0, 2, evaluate)
    toy.search(strategy, lambda point: (toy.ones(point)[0], evaluate(point)[1]), 15)
    seen.clear()
    proposed = strategy.ask(15)[0].point.architecture.hash
    assert proposed in seen and len(seen) == strategy.exact


def test_short_runs_are_not_compared_with_long_ones(toy):
    space = toy.BitSpace(10)
    strategy = make("model", space, 0, 1)
    rng = random.Random(0)
    for number in range(30):  # after one step all losses are high, after nine they are low
        point = space.sample(rng)
        strategy.tell(Result(number, 0, 1, point, (toy.ones(point)[0] + 50,)))
        if number % 3 == 0:
            strategy.tell(Result(number, 1, 9, point, toy.ones(point)))
    view = strategy.knowledge.view([], np.random.default_rng(0))
    truth = np.array([toy.ones(space.sample(random.Random(seed)))[0] for seed in range(40)])
    rows = np.array([strategy.codes.row(space.sample(random.Random(seed)).choices) for seed in range(40)])
    mean = view.predict(rows)[0][:, 0] * view._base.span[0] + view._base.low[0]
    assert np.abs(mean - truth).mean() < 5


def test_each_worker_gets_a_point_of_its_own(toy):
    space = toy.BitSpace(14)
    strategy = make("model", space, 2, 1)
    toy.search(strategy, toy.ones, 20)
    batch = [proposal.point for proposal in strategy.ask(20, 6)]
    assert len({point.architecture.hash for point in batch}) == 6
    strategy.start(Started(20, batch[0]))
    assert strategy.ask(21)[0].point.architecture.hash == batch[1].architecture.hash


def test_a_space_with_a_thousand_holes_is_left_to_evolution(toy):
    assert auto.chosen(toy.BitSpace(12), 2) == "model"
    assert auto.chosen(toy.BitSpace(2000), 2) == "nsga2"
    assert auto.chosen(toy.BitSpace(2000), 1) == "aging_evolution"


def test_a_space_without_holes_has_one_point():
    space = Space.parse("kind: decoder\nvocabulary: 256\nwidth: 32\nbody: [feed_forward]")
    strategy = make("auto", space, 0, 1)
    assert len(strategy.ask(0, 3)) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e308, 1e-320])
def test_huge_and_tiny_values_are_modelled(scale, space, toy):
    strategy = make("model", space, 0, 2)
    toy.search(strategy, lambda point: tuple(scale * (each / 6 - 1) for each in toy.leading_and_trailing(point)), 14)
    assert strategy.ask(14)[0].operator == "model"


def known_results(toy, sign=1.0, shuffle=False):
    """An earlier study of 40 random strings of 16 bits, with the values of `toy.leading_and_trailing`."""
    rng, space = random.Random(3), toy.BitSpace(16)
    points = [space.sample(rng) for _ in range(40)]
    values = [tuple(sign * each for each in toy.leading_and_trailing(point)) for point in points]
    if shuffle:
        rng.shuffle(values)
    return Earlier("old", (0, 1), tuple(point.choices for point in points), (1,) * 40, tuple(values))


@pytest.mark.parametrize("kind", ["the same", "reversed", "shuffled"])
def test_learns_how_far_to_trust_an_earlier_study(kind, toy):
    space, rng = toy.BitSpace(16), random.Random(8)
    earlier = known_results(toy, -1.0 if kind == "reversed" else 1.0, kind == "shuffled")
    plain = make("model", space, 0, 2)
    taught = make("model", space, 0, 2, None, None, [earlier], learn_from=("old",))
    for number in range(14):
        point = space.sample(rng)
        for strategy in (plain, taught):
            strategy.tell(Result(number, 0, 1, point, toy.leading_and_trailing(point)))
    points = [space.sample(rng) for _ in range(60)]
    truth = np.array([toy.leading_and_trailing(point) for point in points])

    def error(strategy):
        rows = np.array([strategy.codes.row(point.choices) for point in points])
        view = strategy.knowledge.view([], np.random.default_rng(0))
        mean = view.predict(rows)[0] * view._base.span + view._base.low
        return np.sqrt(((mean - truth) ** 2).mean())

    if kind == "shuffled":
        assert error(taught) < 1.15 * error(plain), "an unrelated study must not hurt"
    else:
        assert error(taught) < 0.9 * error(plain), "a study with reversed values helps too: its sign is learned"


def test_the_first_points_are_the_best_of_earlier_studies_and_random_ones(toy):
    earlier = known_results(toy)
    strategy = make("model", toy.BitSpace(16), 0, 2, None, None, [earlier], learn_from="old")
    proposals = strategy.ask(0, 6)
    assert [each.operator for each in proposals] == ["earlier", "random", "random", "random", "earlier", "random"]
    front = pareto.front(earlier.values)
    best = ["".join("01"[bit] for bit in earlier.choices[place].values()) for place in front]
    assert {proposals[0].point.architecture.hash, proposals[4].point.architecture.hash} <= set(best)
    assert Earlier.of("old", earlier.as_dict()) == earlier


@pytest.mark.parametrize("kind, after", [("the same", 6), ("shuffled", 10)])
def test_fewer_random_trials_come_first_if_an_earlier_study_is_confirmed(kind, after, toy):
    strategy = make("model", toy.BitSpace(16), 0, 2, None, None, [known_results(toy, 1.0, kind == "shuffled")])
    results = toy.search(strategy, toy.leading_and_trailing, after)
    assert len(results) == after and strategy.ask(after)[0].operator == "model"
    again = make("model", toy.BitSpace(16), 0, 2, None, None, [known_results(toy, 1.0, kind == "shuffled")])
    for result in results[:-1]:
        again.tell(result)
    assert again.ask(after - 1)[0].operator in ("random", "earlier")


def test_every_second_random_point_has_equal_layers_also_if_controls_take_every_second_number():
    strategy = make("model", Space.parse(LAYERS), 0, 1)
    found = set()
    for number in range(0, 16, 2):
        proposal = strategy.ask(number)[0]
        strategy.start(Started(number, proposal.point))
        heads = {value for path, value in proposal.point.choices.items() if path.endswith("heads")}
        found.add(1 if len(heads) == 1 else 4)
    assert found == {1, 4}


def test_failures_teach_where_trials_end_well_before_the_random_start_is_over(toy):
    """One random point in 16 ends well."""
    strategy = make("model", toy.BitSpace(16), 0, 1, start=8)
    ended_well = 0
    for number in range(60):
        point = strategy.ask(number)[0].point
        bits = list(point.choices.values())
        good = all(bits[:4])
        ended_well += good
        strategy.start(Started(number, point))
        strategy.tell(Result(number, 0, 1, point, (float(sum(bits)),) if good else None, None if good else "memory"))
    assert ended_well > 10


def test_an_earlier_study_may_have_values_whose_squares_overflow(toy):
    earlier = known_results(toy)
    values = tuple((first * 1e300, second) for first, second in earlier.values)
    codes = Codes(toy.BitSpace(16))
    lesson = Lesson(codes, Features(codes), 2, dataclasses.replace(earlier, values=values))
    assert len(lesson.best) and np.isfinite(lesson.predicted(lesson.best)).all()


def test_holes_and_values_that_only_one_space_has_are_left_out(toy):
    earlier = known_results(toy)
    codes = Codes(toy.BitSpace(12))
    rows, places = readable(codes, earlier)
    assert rows.shape == (40, 12) and places == list(range(40))
    strange = [dict(each) | {"bit0": "neither"} for each in earlier.choices[:5]]
    rows, places = readable(codes, dataclasses.replace(earlier, choices=(*strange, *earlier.choices[5:])))
    assert places == list(range(5, 40))


def test_a_study_of_a_fixed_depth_teaches_all_layers_of_a_space_that_chooses_it():
    """The value is the number of layers with attention."""
    text = (
        "kind: decoder\nwidth: 16\nvocabulary: 16\nbody: {repeat: {times: %s, of: !choice "
        "{each: true, options: [attention: {heads: 2}, convolution: {kernel: 3}]}}}"
    )
    fixed, chosen, rng = Space.parse(text % "6"), Space.parse(text % "!choice [2, 6, 4]"), random.Random(0)

    def value(point):
        return float(sum(each == "attention" for each in point.choices.values()))

    points = [fixed.sample(rng) for _ in range(40)]
    values = tuple((value(point),) for point in points)
    kept = Earlier("old", (0,), tuple(point.choices for point in points), (1,) * 40, values).as_dict()
    codes = Codes(chosen)
    lesson = Lesson(codes, Features(codes), 1, Earlier.of("old", kept))
    new = [point for point in (chosen.sample(rng) for _ in range(90)) if len(point.choices) == 7]
    predicted = lesson.predicted(np.array([codes.row(point.choices) for point in new]))[:, 0]
    assert bool(np.corrcoef(predicted, [value(point) for point in new])[0, 1] > 0.95)


@pytest.mark.parametrize("value", [0.0, 0.9, "much"])
def test_a_value_that_a_real_interval_does_not_have_is_left_out(value):
    space = Space.parse(
        "kind: decoder\nvocabulary: 256\nwidth: !choice [16, 32]\nbody: [feed_forward]\n"
        "dropout: !float {low: 0.01, high: 0.5, log: true}"
    )
    choices = tuple({"width": 16, "dropout": each} for each in (0.01, value, 0.5))
    rows, places = readable(Codes(space), Earlier("old", (0,), choices, (1,) * 3, ((1.0,),) * 3))
    assert places == [0, 2] and rows[:, 1].tolist() == [0.0, 1.0]


def test_computed_costs_are_features_of_a_small_space(toy):
    space = toy.BitSpace(8)
    points = [space.sample(random.Random(seed)) for seed in range(60)]
    codes = Codes(space)
    rows = np.array([codes.row(point.choices) for point in points])
    costs = Costs(codes, rows, [(None, float(2 ** point.architecture.hash.count("1"))) for point in points])
    assert costs.count == 1
    ones = np.array([point.architecture.hash.count("1") for point in points])
    assert np.corrcoef(costs(rows)[:, 0], ones)[0, 1] == pytest.approx(1)
    features = Features(codes, 1)
    model = Posterior(Kernel(features, Kernel.default(features)), features(rows, 1.0, costs(rows)), ones**2.0)
    assert model.predict(features(rows, 1.0, costs(rows)))[0] == pytest.approx(ones**2.0, abs=1.0)


def test_the_work_does_not_grow_with_a_hundred_thousand_results(toy):
    space, rng = toy.BitSpace(24), np.random.default_rng(0)
    strategy = make("model", space, 0, 2)
    bits = rng.integers(0, 2, (100_000, 24))
    values = np.column_stack([bits[:, :12].sum(1) + 0.1 * bits[:, 12:].sum(1), 24.0 - bits.sum(1)])
    for place, (row, value) in enumerate(zip(bits.astype(np.float32), values.tolist())):
        strategy.knowledge.add(place, row, 1, tuple(value))
    knowledge = strategy.knowledge
    proposals = strategy.ask(100_000, 2)
    assert [each.operator for each in proposals] == ["model", "model"]
    proposed = np.array([[float(bit) for bit in each.point.choices.values()] for each in proposals])
    assert not any(knowledge.has(proposed)) and (proposed[0] != proposed[1]).any(), "they are new"
    base = knowledge._base
    assert len(base.models[0].rows) <= MOST and len(knowledge.fresh(base)) <= 2 * FRESH
    assert base.count > 98_000, "almost all results were considered"
