"""Long-short attention, both ways and causal, against its formulas written out for each query of each head."""

import math

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.primitives.sparse_attention.causal_long_short_attention import (
    CausalLongShortAttention,
    CausalLongShortAttentionConfig,
)
from searchspace.primitives.sparse_attention.long_short_attention import LongShortAttention, LongShortAttentionConfig

C, H = 8, 2
D = C // H


def _norm(norm, y):
    """LN over the whole width, with its variance written out."""
    if norm is None:
        return y
    centred = y - y.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def _summary(block, x, y, slots, places):
    """[slots, C]: head h owns rows h * slots and so on of W_P, and the columns h * D and so on of y."""
    out = torch.zeros(slots, C, dtype=x.dtype)
    for h in range(H):
        for s in range(slots):
            weights = (x[places] @ block.projection.logits.weight[h * slots + s]).exp()
            weights = weights / weights.sum()
            row = torch.stack([w * y[t, h * D : (h + 1) * D] for w, t in zip(weights, places, strict=True)]).sum(0)
            out = out.index_put((torch.tensor([s] * D), torch.arange(h * D, (h + 1) * D)), row, accumulate=True)
    return out


def _keys_values(block, x):
    return F.linear(x, block.key_value.weight, block.key_value.bias).chunk(2, dim=-1)


def _plain(block, x, padding=None):
    """One softmax over the vectors and the keys of the window, query by query; x: [B, T, C]."""
    config, rows = block.config, []
    real = torch.ones(x.shape[:2], dtype=torch.bool) if padding is None else padding
    for xb, rb in zip(x, real, strict=True):
        T, w = len(xb), config.window
        q = F.linear(xb, block.query.weight, block.query.bias)
        kv = _keys_values(block, xb)
        near = [_norm(block.near_norm, y) for y in kv]
        source = near if config.norms == "chained" else kv
        places = [t for t in range(T) if rb[t]]
        far = [_norm(block.far_norm, _summary(block, xb, y, config.slots, places)) for y in source]
        out = torch.zeros(T, C, dtype=x.dtype)
        for i in places:
            low = i // w * w - w // 2
            window = [j for j in places if low <= j < low + 2 * w]
            k, v = (torch.cat([one, other[window]]) for one, other in zip(far, near, strict=True))
            heads = [slice(h * D, (h + 1) * D) for h in range(H)]
            parts = [(k[:, h] @ q[i, h] / math.sqrt(D)).softmax(0) @ v[:, h] for h in heads]
            out = out.index_put((torch.tensor(i),), torch.cat(parts))
        rows.append(out)
    return F.linear(torch.stack(rows), block.output.weight, block.output.bias)


def _causal_plain(block, x, padding=None):
    """The two kinds of scores as they are written, query by query; padded positions are in nothing."""
    config, rows, s = block.config, [], D**-0.5
    frequencies = 10000.0 ** (-2 * torch.arange(C // 2, dtype=x.dtype) / C)

    def wave(t):
        return torch.cat([(t * frequencies).sin(), (t * frequencies).cos()])

    real = torch.ones(x.shape[:2], dtype=torch.bool) if padding is None else padding
    u, v_bias = block.content_bias.flatten(), block.position_bias.flatten()
    for xb, rb in zip(x, real, strict=True):
        T, L, S = len(xb), config.chunk, config.slots
        q = F.linear(xb, block.query.weight, block.query.bias)
        kv = _keys_values(block, xb)
        near = [_norm(block.near_norm, y) for y in kv]
        vectors = {}  # of the chunks that hold anything
        for c in range(T // L):
            places = [t for t in range(c * L, (c + 1) * L) if rb[t]]
            if not places:
                continue
            if config.compress == "hidden":
                made = _keys_values(block, _summary(block, xb, xb, S, places))
                made = [_norm(block.near_norm, y) for y in made] if config.norms == "chained" else made
            else:
                source = near if config.norms == "chained" else kv
                made = [_summary(block, xb, y, S, places) for y in source]
            vectors[c] = [_norm(block.far_norm, y) for y in made]
        out = torch.zeros(T, C, dtype=x.dtype)
        for i in range(T):
            if not rb[i]:
                continue
            chunk, result = i // L, []
            for head in (slice(h * D, (h + 1) * D) for h in range(H)):
                scores, values = [], []
                for j in range(max(0, i - config.window + 1), i + 1):
                    if rb[j]:
                        place = F.linear(wave(i - j), block.near_position.weight)[head]
                        content = (q[i, head] * s + u[head]) @ near[0][j, head]
                        scores.append(content + (q[i, head] * s + v_bias[head]) @ place)
                        values.append(near[1][j, head])
                for c in range(max(0, chunk - (config.chunks or T)), chunk):
                    for slot in range(S if c in vectors else 0):
                        t = (chunk - c) * S - 1 - slot
                        place = F.linear(wave(t), block.far_position.weight)[head]
                        scores.append(q[i, head] * s @ vectors[c][0][slot, head] + q[i, head] * s @ place)
                        values.append(vectors[c][1][slot, head])
                result.append(torch.stack(scores).softmax(0) @ torch.stack(values))
            out = out.index_put((torch.tensor(i),), torch.cat(result))
        rows.append(out)
    return F.linear(torch.stack(rows), block.output.weight, block.output.bias)


def _random(block):
    """Norms and biases that are not neutral."""
    for name, parameter in block.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter)
    return block.double()


@pytest.mark.parametrize("norms", ["chained", "apart", "none"])
@pytest.mark.parametrize(("length", "window", "slots"), [(1, 2, 1), (7, 4, 3), (13, 4, 2), (9, 20, 2)])
def test_equals_its_formula(agrees, length, window, slots, norms):
    config = LongShortAttentionConfig(dim=C, heads=H, window=window, slots=slots, norms=norms, bias=True)
    block, x = _random(LongShortAttention(config)), torch.randn(2, length, C, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, length) < 0.6
    padding[:, 0] = True
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


@pytest.mark.parametrize("compress", ["projected", "hidden"])
@pytest.mark.parametrize("norms", ["apart", "chained", "none"])
@pytest.mark.parametrize(
    ("length", "window", "chunk", "slots", "chunks"), [(1, 2, 2, 1, 3), (14, 5, 3, 2, 2), (23, 4, 4, 1, None)]
)
def test_the_causal_form_equals_its_formula(agrees, length, window, chunk, slots, chunks, norms, compress):
    config = CausalLongShortAttentionConfig(
        dim=C, heads=H, window=window, chunk=chunk, slots=slots, chunks=chunks, norms=norms, compress=compress,
        bias=True,
    )  # fmt: skip
    block, x = _random(CausalLongShortAttention(config)), torch.randn(2, length, C, dtype=torch.float64)
    if length > chunk:
        agrees(block, lambda x: _causal_plain(block, x), x)
        padding = torch.rand(2, length) < 0.5
        agrees(block, lambda x: _causal_plain(block, x, padding), x, Context(padding=padding))
    else:  # the parameters of the far part take no part
        torch.testing.assert_close(block(x, Context()), _causal_plain(block, x), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("chunks", "length"), [(3, 60), (20, 150), (None, 150)])
def test_many_tiles_equal_one_query_at_a_time(chunks, length):
    """Long enough for tiles of both bands; the stream reads one query after the other, with what it kept."""
    torch.default_generator.manual_seed(0)
    config = CausalLongShortAttentionConfig(dim=C, heads=H, window=7, chunk=2, slots=2, chunks=chunks)
    block, streams = _random(CausalLongShortAttention(config)), Streams()
    x, outs = torch.randn(2, length, C, dtype=torch.float64), []
    for piece in x.split([1] * 40 + [length - 43, 3], dim=1):
        streams.rewind()
        outs.append(block(piece, Context(streams=streams)))
        streams.length += piece.shape[1]
    torch.testing.assert_close(torch.cat(outs, dim=1), block(x, Context()), atol=1e-9, rtol=1e-9)
    kept = {name: state.shape[1] for name, state in streams.slots[0].items()}
    assert kept == {"open": length % 2, "far": 2 * (chunks or length // 2), "near": 6}


def test_a_vector_for_every_position_beside_the_whole_window_is_full_attention():
    """Each key is there twice, once as itself and once compressed alone; that changes no softmax's result."""
    length = 8
    config = LongShortAttentionConfig(dim=C, heads=H, window=length, slots=length, norms="none")
    block = LongShortAttention(config).double()
    x = torch.eye(length, dtype=torch.float64)[None]  # position t has the input e_t, so slot s can ask for it
    with torch.no_grad():
        block.projection.logits.weight.copy_(1e4 * torch.eye(length).repeat(H, 1))
    q = F.linear(x, block.query.weight)
    heads = [y.view(1, length, H, D).transpose(1, 2) for y in (q, *_keys_values(block, x))]
    full = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block(x, Context()), F.linear(full, block.output.weight), atol=1e-12, rtol=1e-12)


def test_the_causal_form_within_its_window_is_causal_attention_without_positions():
    """No chunk is full, no wave has a weight."""
    config = CausalLongShortAttentionConfig(dim=C, heads=H, window=20, chunk=20, norms="none")
    block, x = CausalLongShortAttention(config).double(), torch.randn(2, 20, C, dtype=torch.float64)
    torch.nn.init.zeros_(block.near_position.weight)
    q = F.linear(x, block.query.weight)
    heads = [y.view(2, 20, H, D).transpose(1, 2) for y in (q, *_keys_values(block, x))]
    full = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block(x, Context()), F.linear(full, block.output.weight), atol=1e-12, rtol=1e-12)


def test_compressing_hidden_states_is_another_function_than_compressing_keys_and_values():
    blocks, x = [], torch.randn(1, 12, C)
    for compress in ("projected", "hidden"):
        torch.default_generator.manual_seed(0)
        blocks.append(CausalLongShortAttention(CausalLongShortAttentionConfig(dim=C, heads=H, compress=compress)))
    first, second = (block(x, Context()) for block in blocks)
    torch.testing.assert_close(first[:, :4], second[:, :4])  # nothing is compressed yet
    assert not torch.allclose(first[:, 4:], second[:, 4:])


@pytest.mark.parametrize("causal", [True, False])
def test_work_grows_with_the_length_and_not_with_its_square(causal):
    module = CausalLongShortAttention if causal else LongShortAttention
    config = (CausalLongShortAttentionConfig if causal else LongShortAttentionConfig)(dim=16)
    costs = [module.cost(config, Shape(length=length)) for length in (1024, 4096)]
    assert costs[1].flops < 4.01 * costs[0].flops
    assert costs[1].activation_bytes < 4.01 * costs[0].activation_bytes
    assert costs[1].state_bytes == costs[0].state_bytes


def test_reading_every_chunk_before_it_costs_the_square_over_the_chunk():
    config = CausalLongShortAttentionConfig(dim=16, window=16, chunk=16, chunks=None)
    costs = [CausalLongShortAttention.cost(config, Shape(length=length)) for length in (4096, 8192)]
    assert 2 < costs[1].flops / costs[0].flops < 4
    assert costs[1].state_bytes - costs[0].state_bytes == 4096 // 16 * 2 * 16 * 4


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="window must be even, with half of it on each side, but got 5"):
        LongShortAttentionConfig(dim=8, window=5)
    with pytest.raises(ValueError, match="slots must be at least 1, but got 0"):
        LongShortAttentionConfig(dim=8, slots=0)
    with pytest.raises(ValueError, match=r"window must be at least chunk.*window=3, chunk=4"):
        CausalLongShortAttentionConfig(dim=8, window=3)
    with pytest.raises(ValueError, match="chunks must be at least 1, but got 0"):
        CausalLongShortAttentionConfig(dim=8, chunks=0)
    with pytest.raises(ValueError, match="dim must be even, but got 9"):
        CausalLongShortAttentionConfig(dim=9, heads=3)
