"""Optuna's samplers behind our contract: every kind of hole, every sampler, clear errors."""

import importlib.util
import inspect
import random

import optuna
import pytest

from nas.errors import UsageError
from nas.strategies._optuna import holes as optuna_holes
from nas.strategies._optuna import options as sampler_options
from nas.strategies._optuna import study as optuna_study
from nas.strategies.contract import Result, Started
from nas.strategies.optuna import UNUSABLE
from nas.strategies.registry import make
from searchspace.language import holes
from searchspace.tree import Block, Choice, Floats, Integers

HOLES = {
    "words": Choice(("none", "rotary")),
    "look-alikes": Choice((True, 1, 1.0, "1", None)),
    "blocks": Choice((Block("attention", {}), Block("attention", {"heads": 2}), (Block("a", {}), Block("b", {})))),
    "integers": Integers(2, 9),
    "steps": Integers(2, 9, step=3),
    "logarithm": Integers(1, 300, log=True),
    "steps of a logarithm": Integers(8, 64, step=8, log=True),
    "interval": Floats(0.0, 0.5),
    "logarithm of an interval": Floats(1e-5, 1e-1, log=True),
    "grid": Floats(0.1, 0.75, step=0.1),
    "grid of a logarithm": Floats(0.1, 1.6, step=0.25, log=True),
    "one number": Floats(0.5, 0.5),
    "one integer": Integers(4, 4),
}
each_hole = pytest.mark.parametrize("hole", HOLES.values(), ids=HOLES.keys())


@each_hole
def test_what_is_suggested_fills_the_hole(hole):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(30):
        assert holes.admits(hole, optuna_holes.suggest(study.ask(), "hole", hole))


@each_hole
def test_a_value_and_its_parameter_are_the_same(hole):
    rng, distribution = random.Random(3), optuna_holes.distribution(hole)
    for _ in range(30):
        value = holes.draw(hole, rng)
        parameter = distribution.to_internal_repr(optuna_holes.parameter(hole, value))
        trial = optuna.trial.FixedTrial({"hole": distribution.to_external_repr(parameter)})
        again = optuna_holes.suggest(trial, "hole", hole)
        assert again == value if isinstance(hole, Choice | Integers) else again == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("name", ["TPESampler", "NSGAIISampler", "GPSampler"])
def test_a_model_of_the_results_finds_better_than_chance(name, toy):
    def mean(sampler):
        strategy = make("optuna", toy.BitSpace(10), 1, 1, sampler=sampler, **options.get(sampler, {}))
        return sum(r.values[0] for r in toy.search(strategy, toy.ones, 24)[14:]) / 10

    options = {"NSGAIISampler": {"population_size": 8}}
    assert mean(name) < mean("RandomSampler") - 0.5


def test_results_reach_optunas_study_with_their_failures(space):
    strategy = make("optuna", space, 0, 2)
    point = space.point([True, False] * 6)
    strategy.tell(Result(0, 0, 1, point, (1.0, 2.0)))
    strategy.tell(Result(1, 0, 1, point, None))
    strategy.tell(Result(0, 1, 1, point, (0.5, 2.0)))
    strategy.tell(Result(2, 0, 1, None, (0.0, 0.0)))
    states = [(trial.state.name, trial.values) for trial in strategy.study.trials]
    assert states == [("COMPLETE", [0.5, 2.0]), ("PRUNED", None)]
    assert list(strategy.study.trials[0].params.values()) == [1, 0] * 6


def test_a_generation_of_nsga2_is_as_large_as_its_population(space, toy):
    strategy = make("optuna", space, 0, 2, sampler="NSGAIISampler", population_size=5)
    toy.search(strategy, toy.leading_and_trailing, 15)
    generations = [trial.system_attrs["NSGAIISampler:generation"] for trial in strategy.study.trials]
    assert generations == [0] * 5 + [1] * 5 + [2] * 5


def test_brute_force_misses_nothing(toy):
    strategy = make("optuna", toy.BitSpace(4), 0, 1, sampler="BruteForceSampler")
    assert len(toy.search(strategy, toy.ones, 16)) == 16


def test_the_sampler_may_be_written_without_its_option(space):
    assert make("optuna", space, 0, 1, **{"": "NSGAIISampler"}).ask(0)[0].operator == "NSGAIISampler"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sampler": "TPESampled"}, r"no sampler 'TPESampled'\. Did you mean 'TPESampler'\? Known: BruteForce"),
        ({"sampler": "GridSampler"}, "GridSampler cannot be a strategy: it needs a grid besides the space"),
        ({"sampler": "PartialFixedSampler"}, "PartialFixedSampler cannot be a strategy: it wraps another sampler"),
        ({"startup_trials": 3}, r"no option 'startup_trials'\. Did you mean 'n_startup_trials'\? Its options: "),
        ({"n_startup_trials": "3"}, "TPESampler, option 'n_startup_trials': must be a valid integer, but got '3'"),
        ({"n_startup_trials": []}, "option 'n_startup_trials': must be a valid integer"),
        ({"n_startup_trials": float("inf")}, "option 'n_startup_trials': must be a valid integer"),
        ({"n_ei_candidates": 0}, "option 'n_ei_candidates': must be greater than or equal to 1"),
        ({"n_ei_candidates": 10_001}, "option 'n_ei_candidates': must be less than or equal to 10000"),
        ({"prior_weight": float("nan")}, "option 'prior_weight': must be a finite number"),
        ({"multivariate": 1}, "option 'multivariate': must be a valid boolean"),
        ({"gamma": 3}, r"option 'gamma': must be left out, because YAML has no value of the type Callable"),
        (
            {"sampler": "NSGAIISampler", "child_generation_strategy": {"a": 1}},
            "'child_generation_strategy': must be left out",
        ),
        ({"sampler": "NSGAIIISampler", "reference_points": [[1, "a"]]}, r"option 'reference_points\.0\.1': must be"),
        ({"n_startup_trials": "3", "group": "x"}, "(?s)TPESampler has 2 mistakes:.*'n_startup_trials'.*'group'"),
        ({"seed": 3}, "'optuna' has no option 'seed'"),
        ({"sampler": "NSGAIISampler", "population_size": 1}, "NSGAIISampler: `population_size` must be greater"),
        ({"sampler": "CmaEsSampler"}, "CmaEsSampler takes one objective, but the search has 2"),
    ],
)
def test_says_what_is_wrong_with_a_description(options, message, space):
    with pytest.raises(UsageError, match=message):
        make("optuna", space, 0, 2, **options)


@pytest.mark.parametrize(("objectives", "most"), [(2, 999), (3, 124)])
def test_nsga3_gets_only_as_many_directions_as_can_be_listed(objectives, most, space):
    options = {"sampler": "NSGAIIISampler", "dividing_parameter": most}
    make("optuna", space, 0, objectives, **options)
    options["dividing_parameter"] += 1
    with pytest.raises(UsageError, match=r"'dividing_parameter': must be smaller; \d+ parts .* directions"):
        make("optuna", space, 0, objectives, **options)


def test_reference_points_are_rows_of_numbers(space):
    options = {"sampler": "NSGAIIISampler", "population_size": 2, "reference_points": [[1, 0], [0, 1]]}
    assert make("optuna", space, 0, 2, **options).options["reference_points"] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "points, message",
    [
        ([], "'reference_points': must have at least 1 item"),
        ([1, 0], r"'reference_points\.0': must be a list, but got 1"),
        ([[1, 0], []], r"'reference_points\.1': must have 2 numbers, one for each objective, but got \[\]"),
        ([[1]], r"'reference_points\.0': must have 2 numbers, one for each objective, but got \[1\.0\]"),
        ([[1, 0, 0]], r"'reference_points\.0': must have 2 numbers"),
        ([[1, -1]], r"'reference_points\.0\.1': must be greater than or equal to 0, but got -1"),
        ([[1, float("nan")]], r"'reference_points\.0\.1': must be a finite number"),
        ([[1, True]], r"'reference_points\.0\.1': must be a valid number, but got True"),
        ([[1, 1e200]], r"'reference_points\.0\.1': must be less than or equal to"),
        ([[1, 0], [0, 0]], r"'reference_points\.1': must have a number of at least 1e-100, .* but got \[0\.0, 0\.0\]"),
        ([[1e-200, 0]], r"'reference_points\.0': must have a number of at least 1e-100"),
    ],
)
def test_reference_points_are_directions_among_the_objectives(points, message, space):
    with pytest.raises(UsageError, match=message):
        make("optuna", space, 0, 2, sampler="NSGAIIISampler", reference_points=points)


@pytest.mark.parametrize("name", sorted(optuna_study.sampler_classes().keys() - UNUSABLE))
def test_the_defaults_of_each_sampler_are_valid_options(name):
    sampler = optuna_study.sampler_classes()[name]
    parameters = inspect.signature(sampler).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.name != "seed"}
    assert sampler_options.checked(sampler, defaults, 1) == defaults


def test_options_are_read_as_their_types_and_objects_of_optuna_are_left_alone():
    options = {"n_startup_trials": 3.0, "constant_liar": True}
    found = sampler_options.checked(optuna.samplers.TPESampler, options, 1)
    assert found == options and isinstance(found["n_startup_trials"], int)
    other = {"independent_sampler": optuna.samplers.RandomSampler()}
    assert sampler_options.checked(optuna.samplers.QMCSampler, other, 1) == other


@pytest.mark.skipif(importlib.util.find_spec("cmaes") is not None, reason="cmaes is installed")
def test_names_the_package_that_a_sampler_needs(space):
    with pytest.raises(UsageError, match="CmaEsSampler needs the package cmaes"):
        make("optuna", space, 0, 1, sampler="CmaEsSampler")


def test_a_started_trial_runs_in_optunas_study_until_its_result_comes(space):
    strategy = make("optuna", space, 0, 1)
    point = space.point([True, False] * 6)
    strategy.start(Started(4, point))
    strategy.start(Started(5, None))  # outside the space
    strategy.start(Started(4, point))
    assert [trial.state.name for trial in strategy.study.trials] == ["RUNNING"]
    assert len(strategy.ask(6, 3)) == 3
    assert [trial.state.name for trial in strategy.study.trials] == ["RUNNING"], "a proposal stayed"
    strategy.tell(Result(4, 0, 1, point, (1.0,)))
    assert [(trial.state.name, trial.values) for trial in strategy.study.trials] == [("COMPLETE", [1.0])]


@pytest.mark.parametrize("sampler", ["TPESampler", "GPSampler"])
def test_learns_which_architectures_fail(sampler, toy):
    strategy = make("optuna", toy.BitSpace(10), 1, 1, sampler=sampler)
    count = 50 if sampler == "TPESampler" else 24
    results = toy.search(strategy, toy.ones, count, fails=lambda point: point.architecture.hash[3] == "1")
    failed = [result.values is None for result in results]
    assert sum(failed[count // 2 :]) < sum(failed[: count // 2])


def test_pending_trials_change_what_is_proposed(toy):
    def proposed(liar):
        strategy = make("optuna", toy.BitSpace(16), 1, 1, sampler="TPESampler", constant_liar=liar)
        toy.search(strategy, toy.ones, 30)
        found = []
        for number in range(30, 36):
            found.append(strategy.ask(number)[0].point)
            strategy.start(Started(number, found[-1]))
        assert [trial.state.name for trial in strategy.study.trials[30:]] == ["RUNNING"] * 6
        return [point.architecture.hash for point in found]

    assert len(set(proposed(True))) == 6
    assert proposed(True) != proposed(False)


def test_generations_are_counted_as_optuna_counts_them(space, toy):
    """Told without questions, as after a restart."""
    asked = make("optuna", space, 3, 2, sampler="NSGAIISampler", population_size=7)
    told = make("optuna", space, 3, 2, sampler="NSGAIISampler", population_size=7)
    for result in toy.search(asked, toy.leading_and_trailing, 40):
        told.tell(result)
    for strategy in (asked, told):
        counted = [trial.system_attrs["NSGAIISampler:generation"] for trial in strategy.study.trials]
        assert counted == [number // 7 for number in range(40)]
    assert asked.ledger.system == told.ledger.system


def test_a_choice_of_numbers_is_an_ordered_number():
    hole = Choice((8, 2, 4))
    assert optuna_holes.distribution(hole) == optuna.distributions.IntDistribution(0, 2)
    assert [optuna_holes.parameter(hole, value) for value in (2, 4, 8)] == [0, 1, 2]
