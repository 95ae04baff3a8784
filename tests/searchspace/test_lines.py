"""The drawing that a database keeps shows the numbers that torch computes."""

import json

import pytest

from searchspace import zoo
from searchspace.cost import Shape
from searchspace.lines import Drawing, kept
from searchspace.model.drawing import draw, rows


@pytest.mark.parametrize("name", zoo.names())
def test_what_is_kept_is_drawn_as_before(name):
    architecture, shape = zoo.load(name, "tiny"), Shape(length=24)
    drawn = Drawing(length=24, rows=rows(architecture, shape))

    again = kept(json.loads(json.dumps(drawn.to_plain())))

    assert again is not None
    assert again.text() == draw(architecture, shape)
    assert again.cost.numbers() == drawn.cost.numbers()


@pytest.mark.parametrize(
    "change", [{"length": None}, {"lines": [[1]]}, {"lines": None}, {"lines": []}, {"lines": [[0] * 6 + [[1]]]}]
)
def test_what_another_version_wrote_is_no_drawing(change):
    plain = Drawing(length=8, rows=rows(zoo.load("gru", "tiny"), Shape(length=8))).to_plain()

    assert kept(plain) is not None
    assert kept({name: value for name, value in {**plain, **change}.items() if value is not None}) is None


def test_no_drawing():
    assert kept(None) is None
