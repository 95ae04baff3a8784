"""`define` and `use`: one set of parameters at several places, whose holes are filled once."""

import random

import pytest
import torch

from searchspace import zoo
from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.space.space import Space
from searchspace.state import Streams
from searchspace.testing import count_flops

TEXT = """
kind: decoder
define:
  shared: [residual: {norm: rms_norm, of: {attention: {heads: 2}}}, gru]
width: 16
vocabulary: 8
body:
  - use: shared
  - residual: {norm: rms_norm, of: feed_forward}
  - use: shared
  - residual: {norm: rms_norm, of: feed_forward}
"""


def plain(*, text=TEXT):
    """The same model with parameters of its own at every place."""
    return Architecture.parse(
        text.replace("define:\n  shared: [residual: {norm: rms_norm, of: {attention: {heads: 2}}}, gru]\n", "").replace(
            "- use: shared", "- residual: {norm: rms_norm, of: {attention: {heads: 2}}}\n  - gru"
        )
    )


def test_the_places_compute_with_one_set_of_parameters():
    shared, other = build(Architecture.parse(TEXT)), build(plain())
    first, second = shared.body[0], shared.body[2]
    assert first.of is second.of
    ours = {}
    for name in other.state_dict():
        place = int(name.split(".")[1]) if name.startswith("body.") else None
        rest = ".".join(name.split(".")[2:])
        place_of = {0: "body.0.of.0", 1: "body.0.of.1", 2: "body.1", 3: "body.2.of.0", 4: "body.2.of.1", 5: "body.3"}
        ours[name] = shared.state_dict()[f"{place_of[place]}.{rest}" if place is not None else name]
    other.load_state_dict(ours)
    ids = torch.randint(8, (2, 9))
    torch.testing.assert_close(shared.eval()(ids), other.eval()(ids))


def test_parameters_count_once_and_flops_and_state_at_every_place():
    shared, own, shape = Architecture.parse(TEXT), plain(), Shape(batch=1, length=16)
    model, found, other = build(shared), cost(shared, shape), cost(own, shape)
    assert found.parameters == sum(each.numel() for each in model.parameters()) < other.parameters
    assert (found.flops, found.state_bytes) == (other.flops, other.state_bytes)
    assert found.flops == count_flops(lambda: model(torch.zeros(1, 16, dtype=torch.int64)))[0]


def test_every_use_has_a_state_of_its_own():
    model = build(Architecture.parse(TEXT)).eval()
    ids, streams = torch.randint(8, (2, 7)), Streams()
    pieces = [model(ids[:, start : start + 3], Context(streams=streams)) for start in (0, 3, 6)]
    torch.testing.assert_close(torch.cat(pieces, 1), model(ids), atol=1e-5, rtol=1e-5)


def test_gradients_of_all_uses_add():
    model = build(Architecture.parse(TEXT))
    model(torch.randint(8, (2, 5))).square().mean().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("heads: 2", "heads: !choice [1, 2]")])
def test_what_is_printed_is_read_as_the_same(text):
    space = Space.parse(text)
    assert Space.parse(space.text()).text() == space.text()
    assert "use: shared" in space.text() and "define:" in space.text()


def test_the_holes_of_a_definition_are_filled_once():
    space = Space.parse(
        TEXT.replace("heads: 2", "heads: !choice [1, 2, 4]").replace(", gru]", ", !choice [gru, lstm]]")
    )
    assert space.size().points == 6
    for seed in range(6):
        point = space.sample(random.Random(seed))
        assert len(point.choices) == 2
        assert space.locate(point.architecture).choices == point.choices
        assert Architecture.parse(point.architecture.text()) == point.architecture


def test_a_definition_inside_another():
    text = TEXT.replace("define:\n", "define:\n  inner: {feed_forward: {expand: !choice [1, 2]}}\n").replace(
        ", gru]", ", use: inner]"
    )
    space = Space.parse(text)
    model = build(space.sample(random.Random(0)).architecture)
    assert space.size().points == 2 and model.body[0].of[1].of is model.body[2].of[1].of


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("- use: shared", "- use: shred", 8, "Nothing is defined as 'shred'. Did you mean 'shared'? Defined: shared."),
        ("{attention: {heads: 2}}", "{use: shared}", 4, "The definition of 'shared' uses itself."),
        ("define:\n", "define:\n  left: gru\n", 4, "Nothing uses the definition 'left'; write `use: left`."),
        ("heads: 2", "heads: two", 4, "Expected a whole number"),
        (
            "define:\n  shared: [residual: {norm: rms_norm, of: {attention: {heads: 2}}}, gru]",
            "define: 3",
            3,
            "names with",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(old, new, line, message):
    with pytest.raises(SpaceError) as caught:
        Architecture.parse(TEXT.replace(old, new))
    assert message in str(caught.value) and f":{line}: " in str(caught.value)


def test_places_that_differ_cannot_share():
    text = """
kind: encoder_decoder
define: {both: {residual: {of: {attention: {heads: 2}}}}}
width: 8
vocabulary: 4
encoder: {use: both}
decoder: [use: both, attention: {heads: 2, over: memory}]
"""
    with pytest.raises(SpaceError, match="use: both stands at places that differ"):
        Architecture.parse(text)


def test_the_inner_layers_of_the_subformer_share_one_set():
    model = build(zoo.load("subformer_decoder", "tiny"))
    assert model.body[2].of is model.body[3].of and model.body[0] is not model.body[4]
