"""Branched convolution against its definition, position by position and tap by tap."""

from dataclasses import replace

import pytest
import torch

from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.primitives.convolution.branched_convolution import BranchedConvolution, BranchedConvolutionConfig
from searchspace.testing import kept_bytes

ENCODER = BranchedConvolutionConfig(dim=8)
DECODER = BranchedConvolutionConfig(
    dim=8,
    causal=True,
    left="separable",
    left_kernel=11,
    left_width=2.0,
    right="separable",
    right_kernel=7,
    right_activation="identity",
    output_kernel=7,
    output_width=1.0,
)
ACTIVATIONS = {
    "identity": lambda z: z,
    "relu": lambda z: z * (z > 0),
    "leaky_relu": lambda z: torch.where(z > 0, z, 0.2 * z),
    "gelu": lambda z: z * (1 + torch.erf(z / 2**0.5)) / 2,
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "squared_relu": lambda z: z * z * (z > 0),
}


def _neighbour(y, b, i, real):
    """Position i of sequence b, or zeros where there is none."""
    return y[b, i] if 0 <= i < y.shape[1] and real(b, i) else torch.zeros_like(y[b, 0])


def _plain_operation(operation, kind, kernel, activation, y, real, causal):
    """The operation by loops over sequences, positions and taps."""
    left = kernel - 1 if causal else kernel // 2
    outs = []
    for b in range(y.shape[0]):
        for i in range(y.shape[1]):
            near = [_neighbour(y, b, i + k - left, real) for k in range(kernel)]
            here = _neighbour(y, b, i, real)
            if kind == "identity":
                row = here
            elif kind == "dense":
                row = operation.map.weight @ here + operation.map.bias
            elif kind == "convolution":
                row = sum(operation.map.weight[:, :, k] @ near[k] for k in range(kernel)) + operation.map.bias
            else:
                taps = operation.taps
                if kind == "lightweight":
                    taps = taps.exp() / taps.exp().sum(1, keepdim=True)
                    share = y.shape[2] // len(taps)
                    taps = torch.stack([taps[c // share] for c in range(y.shape[2])])
                mixed = sum(taps[:, k] * near[k] for k in range(kernel))
                row = operation.map.weight @ mixed + operation.map.bias
            outs.append(ACTIVATIONS[activation](row))
    return torch.stack(outs).view(*y.shape[:2], -1)


def _plain(block, x, real=lambda b, i: True):
    config = block.config
    sides, operations = [], list(block.branches)
    for side in ("left", "right"):
        kind, kernel, activation = (getattr(config, side + end) for end in ("", "_kernel", "_activation"))
        if kind != "none":
            sides.append(_plain_operation(operations.pop(0), kind, kernel, activation, x, real, config.causal))
    wide = max(side.shape[2] for side in sides)
    if config.combine == "concatenate":
        z = torch.cat(sides, dim=2)
    else:
        fill = 1.0 if config.combine == "multiply" else 0.0
        sides = [torch.cat([s, torch.full((*s.shape[:2], wide - s.shape[2]), fill).to(s)], dim=2) for s in sides]
        z = sides[0] if len(sides) == 1 else sides[0] * sides[1] if fill else sides[0] + sides[1]
    if config.norm:
        centred = z - z.mean(2, keepdim=True)
        spread = (centred.square().mean(2, keepdim=True) + 1e-6).sqrt()
        z = centred / spread * block.norm.weight + block.norm.bias
    kind, kernel, activation = config.output, config.output_kernel, config.output_activation
    out = _plain_operation(block.last, kind, kernel, activation, z, real, config.causal)
    return torch.cat([out, torch.zeros(*out.shape[:2], config.dim - out.shape[2]).to(out)], dim=2)


def _built(config):
    block = BranchedConvolution(config).double()
    if config.norm:
        torch.nn.init.normal_(block.norm.weight)
        torch.nn.init.normal_(block.norm.bias)
    return block


CASES = {
    "encoder cell": ENCODER,
    "encoder cell, causal": replace(ENCODER, causal=True),
    "decoder cell": DECODER,
    "decoder cell, both ways": replace(DECODER, causal=False),
    "multiply": replace(ENCODER, combine="multiply", left_activation="silu"),
    "concatenate": replace(DECODER, combine="concatenate", right_activation="gelu"),
    "no norm": replace(ENCODER, norm=False, left_activation="leaky_relu"),
    "left dead": replace(ENCODER, left="none", right_activation="squared_relu"),
    "right dead": replace(DECODER, right="none"),
    "identity beside even taps": replace(ENCODER, left="identity", left_activation="identity", right_kernel=4),
    "identity on the right": replace(DECODER, right="identity"),
    "lightweight": replace(DECODER, left="lightweight", right="lightweight", heads=2, output="lightweight"),
    "dense at the end": replace(DECODER, output="dense", output_activation="silu"),
    "convolution at the end": replace(ENCODER, output="convolution", output_kernel=2),
}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_equals_its_definition(agrees, config):
    block = _built(config)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.tensor([[True, True, False, True, False], [True] * 5])
    agrees(block, lambda x: _plain(block, x, lambda b, i: padding[b, i]), x, Context(padding=padding))


def test_a_stream_keeps_the_inputs_of_both_convolutions_and_shares_them_between_branches():
    block, streams = _built(DECODER), Streams()
    block(torch.randn(3, 2, 8, dtype=torch.float64), Context(streams=streams))
    assert [slot["tail"].shape for slot in streams.slots.values()] == [(3, 10, 8), (3, 6, 16)]


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_declared_activations_are_those_that_autograd_keeps(config):
    block, x = BranchedConvolution(config), torch.randn(2, 40, 8, requires_grad=True)
    kept = kept_bytes(lambda: block(x, Context()), block.parameters())
    declared = BranchedConvolution.cost(config, Shape(batch=2, length=40)).activation_bytes
    assert declared == pytest.approx(kept, rel=0.1)


def test_dropout_falls_on_the_branches():
    block = _built(replace(ENCODER, dropout=0.5)).train()
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    assert not block(x, Context()).equal(block(x, Context()))
    assert block.eval()(x, Context()).equal(block(x, Context()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"left_kernel": 0}, "left_kernel must be at least 1, but got 0"),
        ({"right_width": 0.3}, "right_width must give a whole number of channels, but got right_width=0.3 of dim=8"),
        ({"left_width": 0.0}, "left_width must give a whole number"),
        ({"output_width": 2.0}, "output_width must be at most 1"),
        ({"left": "none", "right": "none"}, "must not both be 'none'"),
        ({"left": "lightweight", "heads": 3}, "dim must be a multiple of heads"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"dropout": 1.0}, "dropout must lie in"),
    ],
)
def test_says_what_does_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(ENCODER, **fields)
