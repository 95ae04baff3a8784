import pytest

from searchspace import zoo
from searchspace.errors import SpaceError
from searchspace.matching import matched
from searchspace.matching.scaling import Scalable
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost

LENGTH = 64


def test_heads_keep_their_width_and_hidden_layers_their_ratio() -> None:
    llama = Scalable(zoo.load("transformer_modern", "small"))  # width 256, 8 heads, 2 for keys, hidden 512
    text = llama.build(512, 3).text()
    assert "times: 3" in text
    assert "heads: 16" in text
    assert "key_value_heads: 4" in text
    assert "hidden: 1024" in text


def test_its_own_size_is_the_model_itself() -> None:
    model = zoo.load("evolved_transformer", "tiny")
    scalable = Scalable(model)
    assert scalable.build(scalable.width, scalable.depth) is model
    assert Architecture.from_block(scalable._block(scalable.root, scalable.width, scalable.depth)) == model


def test_repeats_of_several_lengths_grow_by_one_factor() -> None:
    text = """
kind: decoder
width: 32
vocabulary: 64
body:
  - repeat: {times: 4, of: [{residual: {of: {gru: {}}}}]}
  - residual: {of: {attention: {heads: 2}}}
  - repeat: {times: 6, of: [{residual: {of: {feed_forward: {expand: 2}}}}]}
"""
    scalable = Scalable(Architecture.parse(text))
    assert (scalable.depth, scalable.depths[0]) == (2, 1)
    body = scalable.build(32, 3).compressed.fields["body"]
    assert [block.fields.get("times") for block in body] == [6, None, 9]  # type: ignore[union-attr]


def test_a_repeat_inside_a_repeat_stays_as_it_is() -> None:
    text = """
kind: decoder
width: 32
vocabulary: 64
body:
  repeat:
    times: 2
    share_weights: true
    of:
      - repeat: {times: 3, share_weights: true, of: [{residual: {of: {gru: {}}}}]}
      - residual: {of: {feed_forward: {expand: 2}}}
"""
    text = Scalable(Architecture.parse(text)).build(32, 5).text()
    assert "times: 5" in text
    assert "times: 3" in text


def test_a_model_without_a_repeat_changes_its_width_alone() -> None:
    flat = Architecture.parse("{kind: decoder, width: 32, vocabulary: 64, body: [{gru: {}}]}")
    winner = zoo.load("transformer_decoder", "small")
    deep, wide = (matched(flat, winner, shape=shape, length=LENGTH) for shape in ("deep", "wide"))
    assert deep == wide
    assert abs(deep.error) <= 0.03


def test_a_model_that_cannot_be_scaled_enters_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Architecture.parse("{kind: decoder, width: 32, vocabulary: 256, body: [{gru: {}}]}")
    winner = zoo.load("transformer_decoder", "small")
    monkeypatch.setattr(Scalable, "_fits", lambda self, width: width == self.width)  # no block of today is so strict
    found = matched(model, winner, shape="deep", length=LENGTH)
    assert found.architecture == model
    assert found.reached == cost(model, length=LENGTH).parameters
    assert found.note == f"{-found.error:.0%} fewer parameters than the winner"


def test_a_name_of_the_zoo_is_scaled_to_the_winner() -> None:
    winner = zoo.load("transformer_decoder", "small")
    for name in ("gru", "linear_transformer", "primer"):
        found = matched(name, winner, shape="wide", length=LENGTH)
        assert abs(found.error) <= 0.03
        assert found.architecture.root.fields["vocabulary"] == 256


def test_a_model_of_another_kind_is_rejected() -> None:
    with pytest.raises(SpaceError, match="vit is of kind encoder, but the winner is of kind decoder"):
        matched("vit", zoo.load("gru", "tiny"), length=LENGTH)
