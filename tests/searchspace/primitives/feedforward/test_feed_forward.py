"""Feed-forward against its formula, with the activations written out."""

import math

import pytest
import torch

from searchspace.contract import Context
from searchspace.primitives.feedforward.feed_forward import FeedForward, FeedForwardConfig
from searchspace.testing import kept_bytes

ACTIVATIONS = {
    "relu": lambda z: z * (z > 0),
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: z * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "quick_gelu": lambda z: z / (1 + torch.exp(-1.702 * z)),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "squared_relu": lambda z: z * z * (z > 0),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_its_formula(agrees, activation, bias):
    block = FeedForward(FeedForwardConfig(dim=6, expand=3, activation=activation, bias=bias)).double()

    def plain(x):
        w1, w2 = block.inner.weight, block.output.weight
        b1, b2 = (block.inner.bias, block.output.bias) if bias else (0.0, 0.0)
        assert w1.shape == (18, 6)
        return ACTIVATIONS[activation](x @ w1.T + b1) @ w2.T + b2

    agrees(block, plain, torch.randn(2, 5, 6, dtype=torch.float64))


@pytest.mark.parametrize("chunks", [1, 3])
def test_the_inner_norm_stands_between_activation_and_output(agrees, chunks):
    config = FeedForwardConfig(dim=6, hidden=10, activation="silu", inner_norm=True, chunks=chunks)
    block = FeedForward(config).double()
    torch.nn.init.normal_(block.norm.weight)
    torch.nn.init.normal_(block.norm.bias)

    def plain(x):
        z = ACTIVATIONS["silu"](x @ block.inner.weight.T + block.inner.bias)
        centred = z - z.mean(2, keepdim=True)
        z = centred / (centred.square().mean(2, keepdim=True) + 1e-6).sqrt() * block.norm.weight + block.norm.bias
        return z @ block.output.weight.T + block.output.bias

    agrees(block, plain, torch.randn(2, 5, 6, dtype=torch.float64))


@pytest.mark.parametrize("length", [1, 2, 7])
def test_chunks_of_positions_give_the_same_numbers(agrees, length):
    block = FeedForward(FeedForwardConfig(dim=6, chunks=3)).double()
    whole = FeedForward(FeedForwardConfig(dim=6)).double()
    whole.load_state_dict(block.state_dict())
    x = torch.randn(2, length, 6, dtype=torch.float64)
    agrees(block, lambda x: torch.func.functional_call(whole, dict(block.named_parameters()), (x, Context())), x)
    with torch.no_grad():
        torch.testing.assert_close(block(x, Context()), whole(x, Context()))


def test_the_backward_pass_of_chunks_replays_their_dropout():
    config = FeedForwardConfig(dim=6, dropout=0.5, chunks=3)
    block, x = FeedForward(config).double(), torch.randn(2, 7, 6, dtype=torch.float64, requires_grad=True)
    torch.default_generator.manual_seed(1)
    expected = torch.cat([block._every(part) for part in x.split([3, 3, 1], dim=1)], dim=1)
    wanted = torch.autograd.grad(expected.square().sum(), (x, *block.parameters()))
    torch.default_generator.manual_seed(1)
    found = block(x, Context())
    assert found.equal(expected)
    for gradient, want in zip(torch.autograd.grad(found.square().sum(), (x, *block.parameters())), wanted, strict=True):
        torch.testing.assert_close(gradient, want)


def test_chunks_keep_their_input_alone():
    def kept(chunks, length):
        block = FeedForward(FeedForwardConfig(dim=8, chunks=chunks))
        x = torch.randn(1, length, 8, requires_grad=True)
        return kept_bytes(lambda: block(x, Context()), block.parameters())

    assert kept(4, 64) == 64 * 8 * 4
    assert kept(1, 64) > 8 * kept(4, 64)


def test_chunks_compile():
    block, x = FeedForward(FeedForwardConfig(dim=6, chunks=3)).eval(), torch.randn(2, 7, 6)
    torch.compiler.reset()
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, Context()), block(x, Context()))
