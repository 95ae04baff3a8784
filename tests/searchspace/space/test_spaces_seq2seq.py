"""The space of the Evolved Transformer contains what its search found and its starting point, and samples build."""

import random

import pytest
import torch

from searchspace import zoo
from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from searchspace.space.space import Space
from searchspace.tree import Block

TRANSFORMER = """
kind: encoder_decoder
width: 64
vocabulary: 256
dropout: 0.1
encoder:
  repeat:
    times: 3
    of:
      - residual:
          norm: &norm {layer_norm: {eps: 1.0e-6}}
          dropout: 0.1
          of: {attention: &own {heads: 8, dropout: 0.1}}
      - residual: {norm: *norm, dropout: 0.1, of: {feed_forward: &wide {expand: 4, activation: relu, dropout: 0.1}}}
encoder_norm: *norm
decoder:
  repeat:
    times: 3
    of:
      - residual: {norm: *norm, dropout: 0.1, of: {attention: *own}}
      - residual: {norm: *norm, dropout: 0.1, of: {attention: {heads: 8, over: memory, dropout: 0.1}}}
      - residual: {norm: *norm, dropout: 0.1, of: {feed_forward: *wide}}
final_norm: *norm
"""


@pytest.fixture(scope="module")
def space() -> Space:
    return Space.load("examples/spaces/seq2seq.yaml", given={"vocabulary": 256})


@pytest.mark.parametrize("width", [64, 512])
def test_both_published_cells_are_points(space: Space, width: int) -> None:
    assert space.contains(zoo.load("evolved_transformer", width=width, vocabulary=256))


def test_the_transformer_that_the_search_started_from_is_a_point(space: Space) -> None:
    assert space.contains(Architecture.parse(TRANSFORMER))


def test_every_sample_builds(space: Space) -> None:
    drawn = random.Random(0)
    broken = [space.violations(space.sample(drawn, feasible=False).architecture) for _ in range(150)]
    assert {violation.quantity for violations in broken for violation in violations} <= {"parameters"}
    for seed in range(20):
        architecture = space.sample(random.Random(seed), feasible=False).architecture
        with torch.device("meta"):
            build(architecture)


def test_samples_translate_and_train(space: Space) -> None:
    torch.default_generator.manual_seed(0)
    tokens = torch.randint(0, 256, (2, 9))
    for seed in range(4):
        architecture = space.sample(random.Random(seed)).architecture
        root = architecture.root
        model = build(Architecture.from_block(Block(root.name, {**root.fields, "width": 32})))
        model(tokens, tokens[:, :7]).square().mean().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
