"""Primer's attention against its definition, one query, one key and one tap at a time."""

import math

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Streams
from searchspace.primitives.attention.attention import Attention, AttentionConfig
from searchspace.primitives.attention.primer_attention import PrimerAttention, PrimerAttentionConfig
from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes
from searchspace.primitives.position.rotary import Rotary, RotaryConfig
from searchspace.testing import kept_bytes


def _convolved(block, x, real):
    """The projections after their taps, [B, T, (H + 2 G) D]."""
    config, projected = block.config, F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    left = config.kernel - 1 if config.causal else config.kernel // 2
    rows = []
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            row = torch.zeros_like(projected[0, 0])
            for k in range(config.kernel):
                j = i + k - left
                if 0 <= j < x.shape[1] and real(b, j):
                    row = row + block.taps[:, k] * projected[b, j]
            rows.append(row)
    return torch.stack(rows).view(*projected.shape)


def _plain(block, x, real=lambda b, j: True, bias=lambda h, i, j: 0.0, turn=lambda head, place: head):
    config = block.config
    H, G, D = config.heads, config.groups, config.dim // config.heads
    mixed = _convolved(block, x, real)
    batch = []
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            heads = []
            for h in range(H):
                g = h // (H // G)
                q = turn(mixed[b, i, h * D : (h + 1) * D], i)
                near = [j for j in range(x.shape[1]) if real(b, j) and (j <= i or not config.causal)]
                if not near:
                    heads.append(q * 0)
                    continue
                keys = [turn(mixed[b, j, (H + g) * D : (H + g + 1) * D], j) for j in near]
                values = torch.stack([mixed[b, j, (H + G + g) * D : (H + G + g + 1) * D] for j in near])
                scores = [(q * k).sum() / math.sqrt(D) + bias(h, i, j) for k, j in zip(keys, near, strict=True)]
                weights = torch.stack(scores).exp()
                heads.append((weights[:, None] * values).sum(0) / weights.sum())
            batch.append(torch.cat(heads))
    return F.linear(torch.stack(batch).view_as(x), block.output.weight, block.output.bias)


def _built(**fields):
    block = PrimerAttention(PrimerAttentionConfig(dim=8, **fields)).double()
    torch.nn.init.normal_(block.taps)  # they start equal in all channels, where a mistake would not show
    return block


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("key_value_heads", "kernel"), [(None, 3), (2, 4), (1, 1)])
def test_equals_its_definition(agrees, causal, key_value_heads, kernel):
    block = _built(causal=causal, heads=4, key_value_heads=key_value_heads, kernel=kernel, bias=True)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.tensor([[True, False, True, True, False, False], [False] * 6])
    agrees(block, lambda x: _plain(block, x, lambda b, j: bool(padding[b, j])), x, Context(padding=padding))


def test_positions_enter_after_the_convolution(agrees):
    block, x = _built(causal=True, heads=2), torch.randn(2, 5, 8, dtype=torch.float64)
    rotary = Rotary(RotaryConfig(dim=8))

    def turn(head, place):
        return rotary.rotate(head[None, None, None], torch.tensor([place]))[0, 0, 0]

    agrees(block, lambda x: _plain(block, x, turn=turn), x, Context(position=rotary))
    away = Context(position=Alibi(AlibiConfig(dim=8)))
    agrees(block, lambda x: _plain(block, x, bias=lambda h, i, j: -slopes(2)[h] * (i - j)), x, away)


def test_with_taps_of_the_position_alone_it_is_attention():
    block = _built(causal=True, heads=2)
    plain = Attention(AttentionConfig(dim=8, causal=True, heads=2)).double()
    with torch.no_grad():
        block.taps.copy_(torch.tensor([0.0, 0.0, 1.0]).expand_as(block.taps))
        plain.query.weight.copy_(block.query_key_value.weight[:8])
        plain.key_value.weight.copy_(block.query_key_value.weight[8:])
        plain.output.weight.copy_(block.output.weight)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(block(x, Context()), plain(x, Context()))


@pytest.mark.parametrize(("causal", "start"), [(True, [1, 1, 3]), (False, [1, 3, 1])])
def test_taps_start_at_half_of_the_position_itself(causal, start):
    taps = PrimerAttention(PrimerAttentionConfig(dim=8, causal=causal)).taps
    torch.testing.assert_close(taps, (torch.tensor(start) / 6).expand_as(taps))


def test_a_stream_keeps_two_projections_and_all_keys_and_values():
    block, streams = _built(causal=True, heads=4, key_value_heads=2), Streams()
    block(torch.randn(3, 5, 8, dtype=torch.float64), Context(streams=streams))
    assert [{name: tuple(state.shape) for name, state in slot.items()} for slot in streams.slots.values()] == [
        {"tail": (3, 2, 16)},
        {"k": (3, 2, 5, 2), "v": (3, 2, 5, 2)},
    ]


def test_memory_grows_as_the_length():
    block = PrimerAttention(PrimerAttentionConfig(dim=8, causal=True))

    def kept(length):
        x = torch.randn(1, length, 8, requires_grad=True)
        return kept_bytes(lambda: block(x, Context()), block.parameters())

    assert kept(512) <= 4.1 * kept(128)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 3}, "dim must be a multiple of heads"),
        ({"key_value_heads": 3}, "heads must be a multiple of key_value_heads"),
        ({"kernel": 0}, "kernel must be at least 1, but got 0"),
        ({"dropout": -0.1}, "dropout must lie in"),
    ],
)
def test_says_what_does_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        PrimerAttentionConfig(dim=8, **fields)
