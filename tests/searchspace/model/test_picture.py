"""The picture of an architecture is well-formed, has every line of the tree, and no overlapping parts."""

import xml.etree.ElementTree as ElementTree

import pytest

from searchspace import zoo
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import rows
from searchspace.model.picture import svg

SHAPE = Shape(batch=2, length=16)
NAMES = {"": "http://www.w3.org/2000/svg"}


def boxes(architecture: Architecture) -> list[tuple[float, float, float, float]]:
    """(left, top, right, bottom) of every box."""
    root = ElementTree.fromstring(svg(architecture, SHAPE))
    found = []
    for rect in root.iterfind("rect", NAMES):
        if "box" in rect.get("class", "").split():
            x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


@pytest.mark.parametrize("name", zoo.names())
def test_there_is_a_box_and_a_line_of_numbers_for_every_line_of_the_tree(name: str) -> None:
    architecture = zoo.load(name, "tiny" if "tiny" in zoo.sizes(name) else "base")
    lines = rows(architecture, SHAPE)
    assert len(boxes(architecture)) == len(lines)
    root = ElementTree.fromstring(svg(architecture, SHAPE))
    texts = ["".join(text.itertext()).replace("\N{NO-BREAK SPACE}", " ") for text in root.iterfind("text", NAMES)]
    for row in lines:
        assert row.text.strip() in texts
        assert " x ".join(map(str, row.output)) in texts


def test_labels_hold_no_space_that_a_renderer_may_drop() -> None:
    architecture = zoo.load("transformer_xl", "tiny")
    root = ElementTree.fromstring(svg(architecture, SHAPE, title="two words"))
    texts = ["".join(text.itertext()) for text in root.iterfind("text", NAMES)]
    assert "two\N{NO-BREAK SPACE}words" in texts
    assert any("\N{NO-BREAK SPACE}" in text for text in texts[len("header") :])
    assert not any(character in text for text in texts for character in " \t\n")
    assert root.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve"


def test_everything_lies_within_the_picture_and_names_are_escaped() -> None:
    text = svg(zoo.load("transformer"), SHAPE, title="<a> & b")
    root = ElementTree.fromstring(text)
    assert root.find("title", NAMES).text == "<a> & b"
    width, height = float(root.get("width")), float(root.get("height"))
    for rect in root.iterfind("rect", NAMES):
        assert float(rect.get("x")) + float(rect.get("width")) <= width
        assert float(rect.get("y")) + float(rect.get("height")) <= height
