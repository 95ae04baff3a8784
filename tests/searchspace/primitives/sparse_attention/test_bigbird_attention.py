"""BigBird attention against sets of blocks drawn with plain numbers, and what the draws promise."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes
from searchspace.primitives.sparse_attention.bigbird_attention import BigbirdAttention, BigbirdAttentionConfig
from searchspace.primitives.sparse_attention.bigbird_pattern import pattern


def _hash(x):
    x %= 2**32
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def _drawn(config, layer, head, row, last):
    """Floyd's draws from the list of the blocks that are neither ends nor near the row."""
    left = [j for j in range(1, last) if abs(j - row) > 1]
    state, ranks = _hash(_hash(head + config.seed * 0x9E3779B9 + layer * 0x85EBCA6B) + row), []
    for step in range(config.random_blocks):
        top = len(left) - config.random_blocks + step
        rank = _hash(state + step) % (top + 1)
        ranks.append(top if rank in ranks else rank)
    return {left[rank] for rank in ranks}


def _reads(config, layer, head, length):
    """[length, length], True where i reads j."""
    b = config.block
    if length <= (5 + 2 * config.random_blocks) * b:
        return torch.ones(length, length, dtype=torch.bool)
    last = (length - 1) // b
    reads = torch.zeros(length, length, dtype=torch.bool)
    for row in range(last + 1):
        everything = row in (0, last)
        near = {0, row - 1, row, row + 1, last} | (set() if everything else _drawn(config, layer, head, row, last))
        for j in range(last + 1):
            if everything or j in near:
                reads[row * b : (row + 1) * b, j * b : (j + 1) * b] = True
    return reads


def _plain(block, x, padding=None, alibi=False):
    config, (B, T, C) = block.config, x.shape
    H, D = config.heads, C // config.heads
    q, k, v = F.linear(x, block.query_key_value.weight, block.query_key_value.bias).view(B, T, 3, H, D).unbind(2)
    out = []
    for b in range(B):
        real = torch.ones(T, dtype=torch.bool) if padding is None else padding[b]
        length = int(real.nonzero().max()) + 1 if real.any() else 0
        length = T if config.end == "padded" else length
        for h in range(H):
            mask = torch.zeros(T, T, dtype=torch.bool)
            mask[:length, :length] = _reads(config, block.layer, h, length) & real[:length]
            scores = q[b, :, h] @ k[b, :, h].T / D**0.5
            if alibi:
                scores = scores - slopes(H)[h] * (torch.arange(T)[:, None] - torch.arange(T)).abs()
            weights = torch.where(mask, scores.exp(), 0.0)
            heads = weights / weights.sum(1, keepdim=True).clamp(min=1e-300) @ v[b, :, h]
            out.append(torch.where(real[:, None], heads, 0.0))
    heads = torch.stack(out).view(B, H, T, D).transpose(1, 2)
    return F.linear(heads.flatten(2), block.output.weight, block.output.bias)


def _lengths(*lengths, longest):
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("drawn", [0, 1, 3])
@pytest.mark.parametrize("length", [1, 20, 33, 40, 61])
def test_equals_its_sets_of_blocks(agrees, length, drawn):
    config = BigbirdAttentionConfig(dim=8, heads=2, block=3, random_blocks=drawn, bias=True, seed=5)
    block = BigbirdAttention(config).double()
    x = torch.randn(2, length, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)


@pytest.mark.parametrize("lengths", [(70, 70), (70, 45), (34, 61), (33, 70), (2, 4), (0, 68)])
@pytest.mark.parametrize("alibi", [False, True])
def test_a_padded_sequence_reads_what_it_reads_alone(agrees, lengths, alibi):
    config = BigbirdAttentionConfig(dim=8, heads=2, block=3)
    block = BigbirdAttention(config).double()
    x, padding = torch.randn(2, 70, 8, dtype=torch.float64), _lengths(*lengths, longest=70)
    padding[:, 30] = False  # padding in the middle: no query reads this key
    position = Alibi(AlibiConfig(dim=8)) if alibi else None
    agrees(block, lambda x: _plain(block, x, padding, alibi), x, Context(padding=padding, position=position))
    whole = block(x, Context(padding=padding, position=position))
    for b, length in enumerate(lengths):
        if length:
            alone = Context(padding=padding[b : b + 1, :length], position=position)
            torch.testing.assert_close(whole[b : b + 1, :length], block(x[b : b + 1, :length], alone))


@pytest.mark.parametrize("lengths", [(70, 45), (40, 20), (0, 68)])
def test_as_released_the_last_block_is_that_of_the_padded_length(agrees, lengths):
    """google-research/bigbird and transformers: one pattern for the batch; padding is masked, and its queries give
    zeros.
    """
    block = BigbirdAttention(BigbirdAttentionConfig(dim=8, heads=2, block=3, end="padded")).double()
    x, padding = torch.randn(2, 70, 8, dtype=torch.float64), _lengths(*lengths, longest=70)
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))
    own = BigbirdAttention(BigbirdAttentionConfig(dim=8, heads=2, block=3)).double()
    own.load_state_dict(block.state_dict())
    assert not block(x, Context(padding=padding)).equal(own(x, Context(padding=padding)))
    assert block(x, Context()).equal(own(x, Context()))


def test_padded_queries_give_zeros():
    block = BigbirdAttention(BigbirdAttentionConfig(dim=8, heads=2, block=2)).double()
    for length in (9, 60):
        padding = _lengths(length - 5, longest=length)
        assert not block(torch.randn(1, length, 8, dtype=torch.float64), Context(padding=padding))[:, -5:].any()


def _blocks(count, layer=0, seed=0, heads=3, drawn=2):
    options = {"heads": heads, "block": 1, "drawn": drawn, "seed": (seed, layer), "some_short": False}
    return pattern(torch.tensor([count]), count, **options).blocks[0, :, 1:-1, 5:]


def test_draws_differ_by_head_row_layer_and_seed_and_never_repeat_a_block():
    drawn = _blocks(40)
    assert not drawn[0].equal(drawn[1])
    assert not drawn.equal(_blocks(40, layer=1))
    assert not drawn.equal(_blocks(40, seed=1))
    assert drawn.equal(_blocks(40))
    for head in drawn.tolist():
        for row, blocks in enumerate(head, start=1):
            assert len({0, row - 1, row, row + 1, 39, *blocks}) == len({0, row - 1, row, row + 1, 39}) + 2
            assert all(0 < block < 39 for block in blocks)


def test_every_block_is_drawn_as_often_as_every_other():
    drawn = torch.stack([_blocks(12, seed=seed, heads=8)[:, 4] for seed in range(300)])
    counts = drawn.flatten().bincount(minlength=12)
    free = [1, 2, 3, 7, 8, 9, 10]
    assert counts.sum() == counts[free].sum() == 4800
    # Binomial: a seventh of 2,400 pairs of draws each, with a deviation of about 22.
    assert (counts[free] - 4800 / 7).abs().max() < 5 * 25


def test_layers_of_a_model_draw_their_own_blocks():
    body = "{repeat: {times: 2, of: {residual: {of: {bigbird_attention: {block: 2}}}}}}"
    model = build(Architecture.parse(f"{{kind: encoder, width: 8, vocabulary: 9, body: {body}}}"))
    assert [block.layer for block in model.modules() if isinstance(block, BigbirdAttention)] == [0, 1]


@pytest.mark.parametrize(("field", "value"), [("block", 0), ("random_blocks", -1), ("seed", -1)])
def test_says_what_does_not_fit(field, value):
    with pytest.raises(ValueError, match=f"{field} must be at least {value + 1}, but got {value}"):
        BigbirdAttentionConfig(dim=8, **{field: value})
