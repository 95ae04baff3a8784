"""Objectives are found by name, read what they say, and say which way is better."""

from __future__ import annotations

import pytest

from nas.errors import UsageError
from nas.objectives import Direction, make, names
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost

SHAPE = Shape(batch=2, length=24)
HALTING = Architecture.parse("""
kind: decoder
width: 16
vocabulary: 32
body:
  - residual: {norm: rms_norm, of: {attention: {heads: 2}}}
  - halting: {times: 4, of: {feed_forward: {expand: 2}}}
""")
COSTS = {"parameters", "flops", "training_flops", "state_bytes", "activation_bytes"}
QUALITIES = {"bits_per_byte", "error", "loss"}


def test_finds_every_objective_and_which_of_them_need_training():
    assert set(names()) >= COSTS | QUALITIES
    assert {name for name in names() if make(name, SHAPE).stage == "cost"} >= COSTS
    assert all(make(name, SHAPE).stage == "metric" for name in QUALITIES)


@pytest.mark.parametrize("name", sorted(COSTS))
def test_a_cost_is_that_of_the_architecture_before_any_training(name):
    objective = make(name, SHAPE)
    field = "expected_flops" if name == "flops" else name
    assert objective.name == name and objective.direction is Direction.MINIMISE
    assert objective.evaluate(HALTING) == getattr(cost(HALTING, SHAPE), field) > 0


def test_parameters_are_those_of_the_built_model():
    expected = sum(parameter.numel() for parameter in build(HALTING).parameters())
    assert make("parameters", SHAPE).evaluate(HALTING) == expected


def test_flops_follow_the_depth_that_was_measured():
    flops = make("flops", SHAPE)
    shallow, deep = (flops.evaluate(HALTING, {"halting_steps": depth}) for depth in (1.0, 4.0))
    assert shallow < flops.evaluate(HALTING, {"halting_steps": 2.5}) < deep == cost(HALTING, SHAPE).flops
    assert flops.evaluate(HALTING, {"loss": 1.0}) == flops.evaluate(HALTING)


@pytest.mark.parametrize("name", sorted(QUALITIES))
def test_a_quality_is_the_metric_of_its_name(name):
    assert make(name, SHAPE).evaluate(HALTING, {name: 0.25, "other": 3.0}) == 0.25


def test_any_metric_has_a_direction():
    objective = make({"metric": "accuracy", "direction": "maximize"}, SHAPE)
    assert (objective.name, objective.direction, objective.stage) == ("accuracy", "maximize", "metric")
    value = objective.evaluate(HALTING, {"accuracy": 0.75})
    assert value == 0.75 and objective.minimised(value) == -0.75
    assert make({"metric": "regret"}, SHAPE).minimised(2.0) == 2.0


@pytest.mark.parametrize("metrics", [None, {"acuracy": 1.0}])
def test_says_what_a_task_gives_when_a_metric_is_missing(metrics):
    with pytest.raises(UsageError, match="objective accuracy: the task gives no such metric"):
        make({"metric": "accuracy"}, SHAPE).evaluate(HALTING, metrics)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("flop", r"No objective is called 'flop'. Did you mean 'flops'\?"),
        ("metric", r"No objective is called 'metric'.*\{metric: NAME, direction: minimize\}"),
        ({"flops": {"length": 3}}, "objective 'flops' has no option 'length'. It takes no options."),
        ({"metric": "a", "directoin": "maximize"}, r"no option 'directoin'. Did you mean 'direction'\?"),
        ({"metric": "a", "direction": "up"}, "'direction': must be 'minimize' or 'maximize', but got 'up'"),
        ({"metric": 3}, "option 'metric': must be a valid string, but got 3"),
        ({"flops": {}, "loss": {}}, "An objective is a name"),
        (3, "An objective is a name"),
    ],
)
def test_rejects_what_is_no_objective(spec, message):
    with pytest.raises(UsageError, match=message):
        make(spec, SHAPE)
