import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace import zoo
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.model.matching import transformer_like

LENGTH = 64


def ratio(architecture: Architecture) -> float:
    like = transformer_like(architecture, LENGTH)
    return cost(like, length=LENGTH).parameters / cost(architecture, length=LENGTH).parameters


@pytest.mark.parametrize("name", zoo.names())
def test_the_zoo_is_matched_within_three_per_cent(name: str) -> None:
    assert abs(ratio(zoo.load(name)) - 1) < 0.03


@given(st.integers(0, 10**9))
@settings(max_examples=25)
def test_models_of_quickstart_size_and_more_are_matched_within_three_per_cent(seed: int) -> None:
    rng = random.Random(seed)
    width, depth = rng.choice(range(64, 400, 16)), rng.randint(2, 12)
    text = f"""
kind: decoder
width: {width}
vocabulary: {rng.choice([64, 256, 8000])}
body:
  repeat:
    times: {depth}
    of:
      - residual: {{of: {{linear_attention: {{heads: 2}}}}}}
      - residual: {{of: {{gated_feed_forward: {{expand: {rng.randint(1, 5)}}}}}}}
"""
    assert abs(ratio(Architecture.parse(text)) - 1) < 0.03


def test_a_plain_transformer_is_matched_by_one_of_its_own_proportions() -> None:
    plain = transformer_like(zoo.load("transformer"), LENGTH)
    assert (plain.root.fields["width"], len(plain.root.fields["encoder"])) == (512, 12)
    assert transformer_like(plain, LENGTH) == plain


def test_it_reads_and_answers_as_the_architecture_does() -> None:
    like = transformer_like(zoo.load("vit", "tiny"), LENGTH).root
    assert (like.fields["features"], like.fields["classes"], like.fields["vocabulary"]) == (4, 10, None)
    tokens = transformer_like(zoo.load("transformer_encoder", "tiny"), LENGTH).root
    assert (tokens.fields["tokens"], tokens.fields["classes"], tokens.fields["vocabulary"]) == (True, None, 256)
    untied = transformer_like(zoo.load("transformer_modern", "small"), LENGTH)
    assert untied.root.fields["tie_embeddings"] is False
    assert sum(p.numel() for p in build(untied).parameters()) == cost(untied).parameters


def test_the_same_architecture_always_gives_the_same_answer() -> None:
    first, second = (transformer_like(zoo.load("universal_transformer", "small"), LENGTH) for _ in range(2))
    assert first.hash == second.hash
