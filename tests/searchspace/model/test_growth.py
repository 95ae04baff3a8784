"""A grown model computes the same as its parent, and all its parameters learn."""

import pytest
import torch

from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from searchspace.model.growth import Grown, deepened, unshared, widened

PRE = """
kind: decoder
width: 16
vocabulary: 11
position: rotary
body:
  - repeat:
      times: 2
      of:
        - residual: {of: {attention: {heads: 4, bias: true}}}
        - residual: {norm: rms_norm, of: {gated_feed_forward: {expand: 2}}}
  - residual: {of: {feed_forward: {hidden: 20}}}
"""
SHARED = """
kind: decoder
width: 16
vocabulary: 11
body:
  - residual: {of: {convolution: {kernel: 3}}}
  - repeat:
      times: 3
      share_weights: true
      of:
        - residual: {of: {attention: {heads: 2}}}
        - residual: {of: [convolution: {kernel: 3}, feed_forward: {expand: 2}]}
  - residual: {of: {feed_forward: {expand: 1}}}
"""
TRANSLATOR = """
kind: encoder_decoder
width: 16
vocabulary: 11
encoder: {repeat: {times: 2, of: [residual: {of: {attention: {heads: 2}}}]}}
decoder: {repeat: {times: 2, of: [residual: {of: {attention: {heads: 2, over: memory}}}]}}
"""
TOKENS = torch.arange(22).view(2, 11) % 11


@pytest.fixture(autouse=True)
def _seed():
    torch.default_generator.manual_seed(0)


def parent(text: str) -> tuple[Architecture, torch.nn.Module]:
    architecture = Architecture.parse(text)
    return architecture, build(architecture).double().eval()


def child(grown: Grown) -> torch.nn.Module:
    module = build(grown.architecture).double().eval()
    module.load_state_dict(grown.weights)
    return module


def check(module: torch.nn.Module, grown: Grown, *inputs: torch.Tensor) -> None:
    """Outputs are equal, there are more parameters, and after two steps every parameter has changed."""
    larger, inputs = child(grown), inputs or (TOKENS,)
    torch.testing.assert_close(larger(*inputs), module(*inputs), atol=1e-6, rtol=1e-6)  # new weights are float32
    assert sum(p.numel() for p in larger.parameters()) > sum(p.numel() for p in module.parameters())
    before = {name: value.clone() for name, value in larger.named_parameters()}
    optimiser = torch.optim.Adam(larger.parameters(), 1e-2)
    for _ in range(2):  # parts with zero output weights learn from the second step on
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(larger(*inputs).flatten(0, 1), TOKENS.flatten()).backward()
        optimiser.step()
    assert all(not before[name].equal(value) for name, value in larger.named_parameters())


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (2, 4), (4, 5), (1, 4), (0, 5)])
def test_layers_that_add_nothing_yet_are_added(start, stop):
    architecture, module = parent(PRE)
    grown = deepened(architecture, module.state_dict(), start, stop)
    assert len(grown.architecture.root.fields["body"]) == 5 + stop - start
    check(module, grown)


def test_both_halves_of_an_encoder_decoder_can_be_deepened():
    architecture, module = parent(TRANSLATOR)
    grown = deepened(architecture, module.state_dict(), 0, 1, "encoder")
    check(module, grown, TOKENS, TOKENS)
    check(module, deepened(grown.architecture, grown.weights, 1, 2, "decoder"), TOKENS, TOKENS)


def test_shared_weights_become_a_copy_for_every_step():
    architecture, module = parent(SHARED)
    grown = unshared(architecture, module.state_dict(), 1)
    assert [block.name for block in grown.architecture.root.fields["body"]] == ["residual"] * 8
    check(module, grown)


@pytest.mark.parametrize("text", [PRE, SHARED])
@pytest.mark.parametrize("times", [2, 3])
def test_hidden_layers_are_widened(text, times):
    architecture, module = parent(text)
    check(module, widened(architecture, module.state_dict(), times))


def test_a_grown_model_grows_again():
    architecture, module = parent(SHARED)
    grown = unshared(architecture, module.state_dict(), 1)
    grown = deepened(grown.architecture, grown.weights, 1, 3)
    check(module, widened(grown.architecture, grown.weights))


@pytest.mark.parametrize(
    ("grow", "said"),
    [
        (lambda a, w: deepened(a, w, 2, 2), "from 0 to 5, but got 2 and 2"),
        (lambda a, w: deepened(a, w, 0, 1, "bodi"), "field must name a list of blocks of the decoder: body"),
        (lambda a, w: unshared(a, w, 0), "must be a repeat with share_weights: true, but is residual"),
        (lambda a, w: unshared(a, w, 9), "but is None"),
        (lambda a, w: widened(a, w, 1), "at least 2"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(grow, said):
    architecture, module = parent(PRE)
    with pytest.raises(ValueError, match=said):
        grow(architecture, module.state_dict())


@pytest.mark.parametrize(
    ("body", "grow", "said"),
    [
        ("residual: {order: post, of: attention}", lambda a, w: deepened(a, w, 0, 1), "pre-norm residual"),
        ("residual: {of: {convolution: {kernel: 3}}}", lambda a, w: deepened(a, w, 0, 1), "ends with a linear map"),
        ("residual: {of: {attention: {heads: 2}}}", lambda a, w: widened(a, w), "there is no feed_forward"),
        ("residual: {of: {feed_forward: {inner_norm: true}}}", lambda a, w: widened(a, w), "inner norm"),
        (
            "repeat: {times: 2, share_weights: true, signal: step, of: [residual: {of: {feed_forward: {expand: 1}}}]}",
            lambda a, w: unshared(a, w, 0),
            "has a signal",
        ),
    ],
)
def test_a_block_that_cannot_grow_says_why(body, grow, said):
    architecture, module = parent(f"kind: decoder\nwidth: 16\nvocabulary: 11\nbody: {{{body}}}\n")
    with pytest.raises(ValueError, match=said):
        grow(architecture, module.state_dict())
