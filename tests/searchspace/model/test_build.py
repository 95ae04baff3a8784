from pathlib import Path

import pytest
import torch

from searchspace.cost import Shape, total
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.model.build import as_architecture, build, cost
from searchspace.parts import Part

TEXT = """
kind: decoder
width: 16
vocabulary: 20
body:
  repeat:
    times: 2
    share_weights: true
    of: {residual: {of: attention}}
"""


def test_builds_from_an_architecture_its_text_or_its_file(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(TEXT)
    models = []
    for source in (Architecture.parse(TEXT), TEXT, path, str(path)):
        torch.default_generator.manual_seed(0)
        models.append(build(source))
    tokens = torch.randint(0, 20, (2, 5))
    first, *others = [model(tokens) for model in models]
    assert first.shape == (2, 5, 20)
    assert all(torch.equal(first, other) for other in others)


def test_every_build_has_fresh_weights_from_the_random_state() -> None:
    first, second = build(TEXT), build(TEXT)
    assert not torch.equal(first.embedding.table.weight, second.embedding.table.weight)


def test_costs_by_part_are_named_by_path_and_add_up() -> None:
    whole = Part(name="model", shape=Shape(length=7, batch=3), block=as_architecture(TEXT).configured)
    parts = [leaf for part in whole.below() for leaf in part.leaves()]
    names = [name for name, _ in parts]
    assert names[0] == "embedding"
    assert "body.0.repeat.of.0.residual.of.0.attention" in names
    assert names[-1] == "logits"
    assert total(cost for _, cost in parts) == cost(TEXT, Shape(length=7, batch=3))


def test_refuses_two_shapes_at_once() -> None:
    with pytest.raises(ValueError, match="either shape or its fields"):
        cost(TEXT, Shape(), length=3)


def test_a_file_that_is_no_architecture_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("kind: decoder\nwidth: 16\nvocabulary: 20\nbody: {atention: {heads: 2}}\n")
    with pytest.raises(SpaceError, match="Did you mean 'attention'"):
        build(path)
