"""Sparse attention against the paper's two sets of indices, in every combination of its switches."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.primitives.attention.attention import Attention, AttentionConfig
from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes
from searchspace.primitives.sparse_attention.sparse_attention import SparseAttention, SparseAttentionConfig

STRIDED = [
    {"pattern": "strided", "composition": composition, "inclusive": inclusive}
    for composition in ("union", "heads", "first", "second")
    for inclusive in (False, True)
]
FIXED = [
    {"pattern": "fixed", "composition": composition, "summary_by_head": by_head, "summary": summary}
    for composition in ("union", "heads", "first", "second")
    for by_head, summary in ((False, 1), (False, 2), (False, 6), (True, 2), (True, 3))
] + [{"pattern": "fixed", "composition": "union", "summary_by_head": True, "summary": 2, "summary_runs": 2}]


def _sets(config, h, i):
    """(A1, A2) of position i in head h."""
    l, c = config.stride, config.summary  # noqa: E741
    if config.pattern == "strided":
        first = {j for j in range(i + 1) if i - j < l + config.inclusive}
        return first, {j for j in range(i + 1) if (i - j) % l == 0}
    runs = config.summary_runs or l // c  # the released code's num_verts
    end = l - c * (h % runs) if config.summary_by_head else l
    return {j for j in range(i + 1) if j // l == i // l}, {j for j in range(i + 1) if end - c <= j % l < end}


def _reads(config, h, i):
    first, second = _sets(config, h, i)
    part = config.composition
    if part == "heads":
        part = "first" if h < config.heads // 2 else "second"
    return {"union": first | second, "first": first, "second": second}[part]


def _plain(block, x, padding=None, alibi=False):
    config, (B, T, C) = block.config, x.shape
    H, D = config.heads, C // config.heads
    q, k, v = F.linear(x, block.query_key_value.weight, block.query_key_value.bias).view(B, T, 3, H, D).unbind(2)
    mask = torch.tensor([[[j in _reads(config, h, i) for j in range(T)] for i in range(T)] for h in range(H)])
    mask = mask.expand(B, H, T, T) if padding is None else mask & padding[:, None, None]
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / D**0.5
    if alibi:
        scores = scores - torch.tensor(slopes(H))[:, None, None] * (torch.arange(T)[:, None] - torch.arange(T)).abs()
    weights = torch.where(mask, scores.exp(), 0.0)
    weights = weights / weights.sum(3, keepdim=True).clamp(min=1e-300)
    return F.linear(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2), block.output.weight, block.output.bias)


def _name(switches):
    return "-".join(str(value) for value in switches.values())


@pytest.mark.parametrize("switches", STRIDED + FIXED, ids=_name)
def test_equals_its_sets_of_positions(agrees, switches):
    config = SparseAttentionConfig(dim=9, heads=3, stride=6, bias=True, **switches)
    block = SparseAttention(config).double()
    for length in (1, 6, 7, 23):
        x = torch.randn(2, length, 9, dtype=torch.float64)
        agrees(block, lambda x: _plain(block, x), x)
    padding, position = torch.rand(2, 23) < 0.6, Alibi(AlibiConfig(dim=9))
    agrees(block, lambda x: _plain(block, x, padding, True), x, Context(padding=padding, position=position))


@pytest.mark.parametrize("pattern", ["strided", "fixed"])
@pytest.mark.parametrize("stride", [20, 21, 500])
def test_a_stride_of_the_length_is_full_causal_attention(pattern, stride):
    block = SparseAttention(SparseAttentionConfig(dim=8, heads=2, pattern=pattern, stride=stride)).double()
    full = Attention(AttentionConfig(dim=8, causal=True, heads=2)).double()
    weights = block.query_key_value.weight
    full.load_state_dict(
        {"query.weight": weights[:8], "key_value.weight": weights[8:], "output.weight": block.output.weight}
    )
    x = torch.randn(2, 20, 8, dtype=torch.float64)
    torch.testing.assert_close(block(x, Context()), full(x, Context()), atol=1e-12, rtol=1e-12)


def test_the_longer_window_changes_the_first_set_and_not_the_union():
    x = torch.randn(1, 20, 8)
    for composition, same in (("union", True), ("first", False)):
        outs = []
        for inclusive in (False, True):
            torch.default_generator.manual_seed(0)
            config = SparseAttentionConfig(dim=8, stride=5, composition=composition, inclusive=inclusive)
            outs.append(SparseAttention(config)(x, Context()))
        assert torch.allclose(*outs, atol=1e-6) == same


def test_the_fixed_pattern_forgets_all_but_summaries():
    config = SparseAttentionConfig(dim=16, pattern="fixed", stride=32, summary=4)
    states = [SparseAttention.cost(config, Shape(length=length)).state_bytes for length in (32, 63, 64, 320)]
    assert states == [2 * 16 * 4 * held for held in (4, 35, 8, 40)]
