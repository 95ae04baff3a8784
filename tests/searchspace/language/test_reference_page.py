"""docs/language.md: every example is read, sampled and built, and every word of the language is there."""

import random
import re
from pathlib import Path

import pytest

from searchspace.cost import Cost
from searchspace.language.constraints import QUANTITIES
from searchspace.language.language import TAGS
from searchspace.model.build import build, cost
from searchspace.space.space import Space

PAGE = Path("docs/language.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
YAML = [body for kind, body in EXAMPLES if kind == "yaml"]
PYTHON = [body for kind, body in EXAMPLES if kind == "python"]


@pytest.mark.parametrize("text", YAML, ids=range(len(YAML)))
def test_an_example_is_read_sampled_and_built(text: str) -> None:
    space = Space.parse(text)
    assert Space.parse(space.text()).text() == space.text()
    assert Space.parse(space.text(defaults=True)).text() == space.text()
    points = [space.sample(random.Random(seed)) for seed in range(3)]
    module = build(points[0].architecture)
    assert sum(each.numel() for each in module.parameters()) == cost(points[0].architecture).parameters
    assert all(space.locate(point.architecture) is not None for point in points)


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for text in PYTHON:
        exec(compile(text, "docs/language.md", "exec"), {})
    assert "points" in capsys.readouterr().out


def test_every_word_of_the_language_has_an_example() -> None:
    examples = "\n".join(YAML)
    for word in (*TAGS, "name:", "options:", "each:", "low:", "high:", "step:", "log:", "constraints:", "min:", "max:"):
        assert word in examples, f"{word} has no example"
    assert len(YAML) > 8


def test_every_quantity_of_a_constraint_is_explained() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M))
    assert rows >= set(QUANTITIES)
    assert "common" not in QUANTITIES and "common" in Cost.__dataclass_fields__
