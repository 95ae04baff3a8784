"""FLOPs of models with halting blocks: one number, and the note that states its assumption."""

import pytest

from searchspace.cost import Shape
from searchspace.lines import human
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost
from searchspace.model.drawing import rows
from searchspace.model.halting import halting_note

HALTING = Architecture.parse(
    "kind: decoder\nwidth: 16\nvocabulary: 11\nbody: {halting: {times: 6, of: [attention, feed_forward]}}\n"
)
SHAPE = Shape(length=32)


def test_the_note_states_the_depth_and_where_it_comes_from():
    assert halting_note(HALTING, SHAPE) == (
        "FLOPs count 2 of 6 steps of halting: the depth of an untrained model. Training FLOPs count every step."
    )
    assert halting_note(HALTING, SHAPE.at_depth({"halting_steps": 3.25})).startswith(
        "FLOPs count 3.25 of 6 steps of halting: the mean depth measured in training."
    )
    assert halting_note(Architecture.parse("kind: decoder\nwidth: 16\nvocabulary: 11\nbody: gru\n"), SHAPE) == ""


@pytest.mark.parametrize("metrics", [None, {}, {"loss": 1.0}, {"halting_steps": None}])
def test_without_a_measured_depth_a_shape_stays_as_it_is(metrics):
    assert SHAPE.at_depth(metrics) == SHAPE


def test_a_metric_in_a_namespace_is_found_too():
    assert SHAPE.at_depth({"run/halting_steps": 2.5}).halting_steps == 2.5


@pytest.mark.parametrize("depth", [None, 1.0, 2.5, 6.0])
def test_the_tree_and_the_costs_show_the_same_flops(depth):
    shape = SHAPE.at_depth({"halting_steps": depth})
    found = cost(HALTING, shape)
    assert found.numbers()["flops"] == found.expected_flops == rows(HALTING, shape)[0].cost.expected_flops
    assert human(found.expected_flops) == human(rows(HALTING, shape)[0].cost.expected_flops)
    assert found.numbers()["maximum_flops"] == found.flops >= found.expected_flops
    shares = sum(row.flops_share for row in rows(HALTING, shape) if row.depth == 1)
    assert shares == pytest.approx(1)
