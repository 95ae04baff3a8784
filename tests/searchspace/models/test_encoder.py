import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace.build import build
from searchspace.contract import Context, Streams
from searchspace.errors import SpaceError
from searchspace.models.encoder import mean_position
from searchspace.random_models import random_model

FIELDS = [
    {"vocabulary": 13},
    {"features": 3},
    {"features": 3, "classes": 4},
    {"vocabulary": 13, "classes": 4},
    {"vocabulary": 13, "tokens": True},
]


def inputs(fields: dict, batch: int, length: int) -> torch.Tensor:
    if "features" in fields:
        return torch.randn(batch, length, fields["features"], dtype=torch.float64)
    return torch.randint(0, 13, (batch, length))


@given(st.integers(0, 10**9), st.sampled_from(FIELDS), st.integers(1, 6))
@settings(max_examples=30)
@torch.no_grad()
def test_padding_changes_nothing(seed: int, fields: dict, length: int) -> None:
    torch.manual_seed(seed)
    model = random_model(random.Random(seed), "encoder", **fields).build().double().eval()
    alone = inputs(fields, 2, length)
    padded = torch.cat([alone, inputs(fields, 2, 3)], dim=1)
    padding = torch.arange(length + 3).expand(2, -1) < length
    out = model(padded, Context(padding=padding))
    torch.testing.assert_close(out if "classes" in fields else out[:, :length], model(alone))


@pytest.mark.parametrize("fields", FIELDS)
def test_gives_vectors_or_logits(fields: dict) -> None:
    model = random_model(random.Random(1), "encoder", **fields).build().double()
    out = model(inputs(fields, 2, 5))
    assert out.shape == ((2, 4) if "classes" in fields else (2, 5, 13 if "tokens" in fields else 16))


def test_a_position_sees_what_comes_after_it() -> None:
    torch.manual_seed(0)
    model = build("kind: encoder\nwidth: 8\nvocabulary: 13\nbody: {attention: {heads: 2}}\n")
    first = torch.tensor([[1, 2, 3]])
    assert not torch.allclose(model(first)[:, 0], model(torch.tensor([[1, 2, 4]]))[:, 0])


def test_the_mean_is_over_real_positions() -> None:
    x = torch.tensor([[[1.0], [3.0], [100.0]], [[7.0], [8.0], [9.0]]])
    padding = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_position(x, padding).tolist() == [[2.0], [0.0]]
    torch.testing.assert_close(mean_position(x, None), x.mean(1))


@pytest.mark.parametrize("fields", ["", "vocabulary: 13\nfeatures: 3\n"])
def test_needs_either_tokens_or_vectors(fields: str) -> None:
    with pytest.raises(SpaceError, match=r"either vocabulary .* or features"):
        build(f"kind: encoder\nwidth: 8\n{fields}body: feed_forward\n")


def test_logits_of_tokens_are_products_with_the_table_they_are_read_with() -> None:
    torch.manual_seed(0)
    text = "kind: encoder\nwidth: 8\nvocabulary: 13\ntokens: {}\nbody: {{attention: {{heads: 2}}}}\n"
    plain, logits, tokens = build(text.format("false")), build(text.format("true")), torch.randint(0, 13, (2, 5))
    logits.load_state_dict(plain.state_dict())
    torch.testing.assert_close(logits(tokens), plain(tokens) @ plain.input.table.weight.T)


@pytest.mark.parametrize(
    ("fields", "message"),
    [("features: 3\n", "so it needs vocabulary"), ("vocabulary: 13\nclasses: 4\n", r"and classes=4; leave one out")],
)
def test_logits_of_tokens_need_a_table_and_no_classes(fields: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build(f"kind: encoder\nwidth: 8\ntokens: true\n{fields}body: feed_forward\n")


def test_reading_in_pieces_is_refused() -> None:
    model = build("kind: encoder\nwidth: 8\nvocabulary: 13\nbody: feed_forward\n")
    with pytest.raises(ValueError, match="cannot read its input in pieces"):
        model(torch.zeros(1, 2, dtype=torch.int64), Context(streams=Streams()))
