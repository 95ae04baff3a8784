"""Longformer attention against its definition: a dense mask, local and global projections, each key once."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.model.build import build
from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes
from searchspace.primitives.position.rotary import Rotary, RotaryConfig
from searchspace.primitives.sparse_attention.longformer_attention import (
    LongformerAttention,
    LongformerAttentionConfig,
)


def _heads(x, layer, count, H, rotate):
    B, T, C = x.shape
    parts = F.linear(x, layer.weight, layer.bias).view(B, T, count, H, C // H).permute(2, 0, 3, 1, 4)
    return [rotate(part) if n < max(1, count - 1) else part for n, part in enumerate(parts)]


def _plain(block, x, padding=None, position=None, marks=None):
    """Every pair, under the mask of its row: first the rows of all positions, then those of the global ones."""
    config, (B, T, C) = block.config, x.shape
    H, D = config.heads, C // config.heads
    marks = (torch.arange(T) < config.global_tokens).expand(B, T) if marks is None else marks
    marks = marks if padding is None or config.global_at == "start" else marks & padding
    distance = torch.arange(T)[:, None] - torch.arange(T)
    rotate = (lambda y: y) if not isinstance(position, Rotary) else lambda y: position.rotate(y, torch.arange(T))
    bias = torch.zeros(H, T, T, dtype=x.dtype)
    if isinstance(position, Alibi):
        bias = -torch.tensor(slopes(H))[:, None, None] * distance.abs()
    real = torch.ones(B, 1, 1, T, dtype=torch.bool) if padding is None else padding[:, None, None]

    def rows(q, k, v, mask):
        weights = torch.where(mask & real, (q @ k.transpose(2, 3) / D**0.5 + bias).exp(), 0.0)
        return weights / weights.sum(3, keepdim=True).clamp(min=1e-300) @ v

    near = []
    for h in range(H):
        plain = config.dilated_heads is not None and h < H - config.dilated_heads
        d = 1 if plain else config.dilation
        near.append((distance % d == 0) & (distance.abs() <= d * config.window // 2) | marks[:, None])
    # The rows of all positions, then those of the global ones with their own projections.
    out = rows(*_heads(x, block.query_key_value, 3, H, rotate), torch.stack(near, dim=1))
    if config.global_tokens:
        (q,) = _heads(x, block.global_query, 1, H, rotate)
        k, v = _heads(x, block.global_key_value, 2, H, rotate)
        out = torch.where(marks[:, None, :, None], rows(q, k, v, torch.ones(T, T, dtype=torch.bool)), out)
    return F.linear(out.transpose(1, 2).flatten(2), block.output.weight, block.output.bias)


@pytest.mark.parametrize("dilated", [(1, None), (3, None), (2, 1)], ids=["together", "dilated", "one_head"])
@pytest.mark.parametrize("global_tokens", [0, 1, 4])
@pytest.mark.parametrize("length", [1, 4, 5, 50])
def test_equals_its_definition(agrees, length, global_tokens, dilated):
    config = LongformerAttentionConfig(
        dim=8, heads=2, window=6, global_tokens=global_tokens, dilation=dilated[0], dilated_heads=dilated[1]
    )
    block = LongformerAttention(config).double()
    x, padding = torch.randn(2, length, 8, dtype=torch.float64), torch.rand(2, length) < 0.6
    if length > global_tokens:
        agrees(block, lambda x: _plain(block, x) + _every(block), x)
    for position in (None, Alibi(AlibiConfig(dim=8)), Rotary(RotaryConfig(dim=8))):
        context = Context(padding=padding, position=position)
        found, expected = block(x, context), _plain(block, x, padding, position)
        torch.testing.assert_close(found[padding], expected[padding], atol=1e-9, rtol=1e-9)


MARKS = torch.zeros(3, 50, dtype=torch.bool)
MARKS[0, [3, 17, 49]] = MARKS[1, 30] = True


@pytest.mark.parametrize("dilated", [(1, None), (3, None), (2, 1)], ids=["together", "dilated", "one_head"])
def test_marked_positions_equal_the_definition(agrees, dilated):
    """allenai/longformer and transformers: a mask names the global positions of each sequence, three, one and none."""
    options = {"window": 6, "dilation": dilated[0], "dilated_heads": dilated[1]}
    config = LongformerAttentionConfig(dim=8, heads=2, global_tokens=4, global_at="context", **options)
    block = LongformerAttention(config).double()
    x, padding = torch.randn(3, 50, 8, dtype=torch.float64), torch.rand(3, 50) < 0.7
    agrees(block, lambda x: _plain(block, x, marks=MARKS), x, Context(global_positions=MARKS))
    agrees(block, lambda x: _plain(block, x), x)  # without marks the first ones are global
    for position in (None, Alibi(AlibiConfig(dim=8)), Rotary(RotaryConfig(dim=8))):
        context = Context(padding=padding, position=position, global_positions=MARKS)
        found, expected = block(x, context), _plain(block, x, padding, position, MARKS)
        torch.testing.assert_close(found[padding], expected[padding], atol=1e-9, rtol=1e-9)


def test_marks_at_the_start_are_the_first_positions():
    x, marks = torch.randn(2, 50, 8, dtype=torch.float64), (torch.arange(50) < 3).expand(2, 50)
    blocks = []
    for where in ("start", "context"):
        torch.default_generator.manual_seed(0)
        config = LongformerAttentionConfig(dim=8, heads=2, window=6, global_tokens=3, global_at=where)
        blocks.append(LongformerAttention(config).double())
    found, expected = (block(x, Context(global_positions=marks)) for block in blocks)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_a_model_hands_marks_to_its_blocks_and_its_class_token_is_global():
    block = "{longformer_attention: {heads: 2, window: 4, global_tokens: 2, global_at: context}}"
    text = f"kind: encoder\nwidth: 8\nfeatures: 3\nclasses: 2\nclass_token: true\npool: first\nbody: {block}\n"
    model, seen = build(text), []
    attention = next(module for module in model.modules() if isinstance(module, LongformerAttention))
    attention.register_forward_hook(lambda module, inputs, output: seen.append(inputs[1].read("global_positions")))
    marks = torch.tensor([[False, False, True, False]])
    model(torch.randn(1, 4, 3), Context(global_positions=marks))
    assert seen[0].tolist() == [[True, False, False, True, False]]
    with pytest.raises(ValueError, match="at most 2 positions of a sequence may be global, but 5 are marked"):
        model(torch.randn(1, 4, 3), Context(global_positions=~marks | marks))


def _every(block):
    """Zero, by way of every parameter, so that all of them have a gradient in the plain form too."""
    return sum(parameter.sum() for parameter in block.parameters()) * 0


def test_a_window_of_the_length_is_full_attention():
    block = LongformerAttention(LongformerAttentionConfig(dim=8, heads=2, window=40)).double()
    x = torch.randn(2, 20, 8, dtype=torch.float64)
    projected = F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    q, k, v = projected.view(2, 20, 3, 2, 4).permute(2, 0, 3, 1, 4)
    full = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    expected = F.linear(full, block.output.weight, block.output.bias)
    torch.testing.assert_close(block(x, Context()), expected, atol=1e-12, rtol=1e-12)


def test_says_what_does_not_fit():
    block = LongformerAttention(LongformerAttentionConfig(dim=8, global_tokens=2, global_at="context"))
    with pytest.raises(ValueError, match=r"global_positions must be \[1, 4\], but its shape is \[1, 5\]"):
        block(torch.randn(1, 4, 8), Context(global_positions=torch.ones(1, 5, dtype=torch.bool)))
