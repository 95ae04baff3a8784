"""Long-short attention, both ways and causal, against its formulas written out for each query of each head."""

import math

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Given, Streams
from searchspace.cost import Shape
from searchspace.language import schema
from searchspace.primitives.sparse_attention.causal_long_short_attention import (
    CausalLongShortAttention,
    CausalLongShortAttentionConfig,
)
from searchspace.primitives.sparse_attention.long_short_attention import LongShortAttention, LongShortAttentionConfig
from searchspace.registry import configure
from searchspace.testing import count_flops
from searchspace.tree import Block

C, H = 8, 2
D = C // H


def _norm(norm, y):
    """LN over the whole width, or over each head, with its variance written out."""
    if norm is None:
        return y
    parts = []
    for part in y.split(len(norm.weight), dim=-1):
        centred = part - part.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
        parts.append(centred / scale * norm.weight + norm.bias)
    return torch.cat(parts, dim=-1)


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
    both = F.linear(x, block.key_value.weight, block.key_value.bias)
    return (both, both) if block.config.one_map else both.chunk(2, dim=-1)


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


def _class_plain(block, x):
    """NVIDIA/transformer-ls, lra/attention_transformer_ls.py, with a class token from the sequence."""
    config, rows = block.config, []
    for xb in x:
        first, rest, w = xb[:1], xb[1:], config.window
        q_first, q = (F.linear(y, block.query.weight, block.query.bias) for y in (first, rest))
        kv_first, kv = _keys_values(block, first), _keys_values(block, rest)
        near = [_norm(block.near_norm, y) for y in kv]
        source = near if config.norms == "chained" else kv
        places = list(range(len(rest)))
        summaries = [_summary(block, rest, y, config.slots, places) for y in source]
        far = [_norm(block.far_norm, torch.cat(parts)) for parts in zip(kv_first, summaries, strict=True)]
        outs = torch.zeros(len(xb), C, dtype=x.dtype)
        for h in (slice(h * D, (h + 1) * D) for h in range(H)):
            others = []
            for i in places:
                low = i // w * w - w // 2
                window = [j for j in places if low <= j < low + 2 * w]
                k, v = (torch.cat([one, other[window]])[:, h] for one, other in zip(far, near, strict=True))
                others.append((k @ q[i, h] / math.sqrt(D)).softmax(0) @ v)
            others = torch.stack(others)
            scores = torch.cat([kv_first[0][:, h], others]) @ q_first[0, h] / math.sqrt(D)
            own = scores.softmax(0) @ torch.cat([kv_first[1][:, h], others])
            outs[:, h] = torch.cat([own[None], others])
        rows.append(outs)
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
                        place = F.linear(wave(t), block.far_position.weight, block.far_position.bias)[head]
                        scores.append(q[i, head] * s @ vectors[c][0][slot, head] + q[i, head] * s @ place)
                        values.append(vectors[c][1][slot, head])
                result.append(torch.stack(scores).softmax(0) @ torch.stack(values))
            out = out.index_put((torch.tensor(i),), torch.cat(result))
        rows.append(out)
    return F.linear(torch.stack(rows), block.output.weight, block.output.bias)


def _mixed_plain(block, x, padding=None, norm=None):
    """autoregressive/model_lib/layer.py of NVIDIA/transformer-ls, segment after segment, with its cache of inputs.

    x is what enters `norm`, which the released layer calls on the input and on the cache.
    """
    config, s, norm = block.config, D**-0.5, norm or (lambda y: y)
    L, S, rows = config.chunk, config.slots, []
    frequencies = 10000.0 ** (-2 * torch.arange(C // 2, dtype=x.dtype) / C)

    def projected(position, t):
        return F.linear(torch.cat([(t * frequencies).sin(), (t * frequencies).cos()]), position.weight, position.bias)

    u, v_bias = block.content_bias.flatten(), block.position_bias.flatten()
    real = torch.ones(x.shape[:2], dtype=torch.bool) if padding is None else padding
    for xb, rb in zip(x, real, strict=True):
        zeros = config.chunks * L if config.compress == "mixed_from_zeros" else 0
        cache, cached, outs = xb.new_zeros(zeros, C), rb.new_ones(zeros), []
        for start in range(0, len(xb), config.segment):
            h, there = norm(xb[start : start + config.segment]), rb[start : start + config.segment]
            old, M = norm(cache), len(cache)
            both = torch.cat([old, h])
            seen = torch.cat([cached, there])
            kv = _keys_values(block, both)
            near = [_norm(block.near_norm, y) for y in kv]
            vectors = []
            for c in range(len(both) // L):
                places = [t for t in range(c * L, (c + 1) * L) if seen[t]]
                if not places:
                    vectors.append(None)
                elif c * L < M:
                    made = _keys_values(block, _summary(block, both, both, S, places))
                    made = [_norm(block.near_norm, y) for y in made] if config.norms == "chained" else made
                else:
                    source = near if config.norms == "chained" else kv
                    made = [_summary(block, both, y, S, places) for y in source]
                if places:
                    vectors.append([_norm(block.far_norm, y) for y in made])
            q = F.linear(h, block.query.weight, block.query.bias)
            for i in range(len(h)):
                if not there[i]:
                    outs.append(xb.new_zeros(C))
                    continue
                result = []
                for head in (slice(k * D, (k + 1) * D) for k in range(H)):
                    scores, values = [], []
                    for j in range(max(0, M + i - config.window + 1), M + i + 1):
                        if seen[j]:
                            place = projected(block.near_position, M + i - j)[head]
                            content = (q[i, head] * s + u[head]) @ near[0][j, head]
                            scores.append(content + (q[i, head] * s + v_bias[head]) @ place)
                            values.append(near[1][j, head])
                    for c in range((M + i) // L):
                        for slot in range(S if vectors[c] else 0):
                            place = projected(block.far_position, ((M + i) // L - c) * S - 1 - slot)[head]
                            scores.append(q[i, head] * s @ (vectors[c][0][slot, head] + place))
                            values.append(vectors[c][1][slot, head])
                    result.append(torch.stack(scores).softmax(0) @ torch.stack(values))
                outs.append(torch.cat(result))
            most = None if config.chunks is None else config.chunks * L
            cache = torch.cat([cache, xb[start : start + config.segment].detach()])
            cached = seen
            if most is not None:
                cache, cached = cache[-most:], cached[-most:]
        rows.append(torch.stack(outs))
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


@pytest.mark.parametrize("fields", [{"one_map": True}, {"head_norms": True}, {"one_map": True, "head_norms": True}])
@pytest.mark.parametrize("norms", ["chained", "apart", "none"])
def test_shared_keys_and_values_and_norms_of_heads_equal_their_formula(agrees, norms, fields):
    config = LongShortAttentionConfig(dim=C, heads=H, window=4, slots=2, norms=norms, **fields)
    block, x = _random(LongShortAttention(config)), torch.randn(1, 13, C, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    causal = CausalLongShortAttentionConfig(dim=C, heads=H, window=4, chunk=3, slots=2, norms=norms, **fields)
    block = _random(CausalLongShortAttention(causal))
    agrees(block, lambda x: _causal_plain(block, x), x)


@pytest.mark.parametrize("norms", ["chained", "apart", "none"])
@pytest.mark.parametrize(("length", "window", "slots"), [(2, 2, 1), (14, 4, 2), (9, 20, 3)])
def test_a_class_token_equals_its_formula(agrees, length, window, slots, norms):
    config = LongShortAttentionConfig(dim=C, heads=H, window=window, slots=slots, norms=norms, class_token=True)
    block, x = _random(LongShortAttention(config)), torch.randn(2, length, C, dtype=torch.float64)
    agrees(block, lambda x: _class_plain(block, x), x)
    longer = torch.cat([x, torch.randn(2, 3, C, dtype=torch.float64)], dim=1)
    padding = torch.arange(length + 3).expand(2, -1) < length
    found = block(longer, Context(padding=padding))[:, :length]
    torch.testing.assert_close(found, _class_plain(block, x), atol=1e-9, rtol=1e-9)


def test_every_position_reads_the_class_token_and_it_reads_them():
    config = LongShortAttentionConfig(dim=C, heads=H, window=2, slots=1, class_token=True)
    block, x = LongShortAttention(config).double(), torch.randn(1, 9, C, dtype=torch.float64, requires_grad=True)
    y = block(x, Context())
    (first,) = torch.autograd.grad(y[:, 1:].square().sum(), x, retain_graph=True)
    (others,) = torch.autograd.grad(y[:, 0].square().sum(), x)
    assert (first[0, 0] != 0).all() and (others[0].abs().sum(1) > 0).all()


@pytest.mark.parametrize("compress", ["projected", "hidden"])
@pytest.mark.parametrize("norms", ["apart", "chained", "none"])
@pytest.mark.parametrize(
    ("length", "window", "chunk", "slots", "chunks"), [(1, 2, 2, 1, 3), (14, 5, 3, 2, 2), (17, 4, 4, 1, None)]
)
def test_the_causal_form_equals_its_formula(agrees, length, window, chunk, slots, chunks, norms, compress):
    config = CausalLongShortAttentionConfig(
        dim=C, heads=H, window=window, chunk=chunk, slots=slots, chunks=chunks, norms=norms, compress=compress,
        bias=True,
    )  # fmt: skip
    block, x = _random(CausalLongShortAttention(config)), torch.randn(2, length, C, dtype=torch.float64)
    if length > chunk:  # whole and padded with one form of norms, one of the two with the other forms
        if norms == "apart" or chunks:
            agrees(block, lambda x: _causal_plain(block, x), x[:1])
        if norms == "apart" or not chunks:
            padding = torch.rand(2, length) < 0.5
            agrees(block, lambda x: _causal_plain(block, x, padding), x, Context(padding=padding))
    else:  # the parameters of the far part take no part
        torch.testing.assert_close(block(x, Context()), _causal_plain(block, x), atol=1e-9, rtol=1e-9)


MIXED = [
    {"segment": 6, "chunk": 3, "slots": 2, "chunks": 3, "window": 5, "bias": True, "distance_bias": True},
    {"segment": 4, "chunk": 2, "slots": 1, "chunks": None, "window": 7, "norms": "chained"},
    {"segment": 8, "chunk": 2, "chunks": 5, "window": 3, "compress": "mixed_from_zeros", "distance_bias": True},
    {"segment": 4, "chunk": 4, "chunks": 2, "window": 5, "norms": "none", "one_map": True},
]


def _mixed(**fields):
    config = CausalLongShortAttentionConfig(**{"dim": C, "heads": H, "compress": "mixed", **fields})
    return _random(CausalLongShortAttention(config))


@pytest.mark.parametrize("fields", MIXED, ids=str)
def test_the_mixed_form_equals_the_released_code(agrees, fields):
    block, x = _mixed(**fields), torch.randn(2, 19, C, dtype=torch.float64)
    agrees(block, lambda x: _mixed_plain(block, x), x[:1])
    padding = torch.rand(2, 19) < 0.7
    agrees(block, lambda x: _mixed_plain(block, x, padding), x, Context(padding=padding))


def test_behind_a_norm_the_mixed_form_keeps_what_enters_it(agrees):
    """The released layer norms input and cache, and takes the residual from the normed input."""
    of = Block("causal_long_short_attention", {"heads": H, "compress": "mixed_from_zeros", **MIXED[0]})
    tree = schema.complete(Block("residual", {"order": "stream", "of": (of,)}))
    residual = configure(tree, Given(dim=C, causal=True)).build()
    _random(residual)
    torch.nn.init.normal_(residual.norm.gain)

    def plain(x):
        def norm(y):
            return residual.norm(y, Context())

        return norm(x) + _mixed_plain(residual.of[0], x, norm=norm)

    agrees(residual, plain, torch.randn(2, 19, C, dtype=torch.float64))
    cost, x = configure(tree, Given(dim=C, causal=True)).cost(Shape(batch=2, length=19)), torch.randn(2, 19, C)
    block = configure(tree, Given(dim=C, causal=True)).build()
    x.requires_grad_()
    assert (cost.flops, cost.training_flops) == count_flops(lambda: block(x, Context()))


def test_a_bias_of_distances_moves_weight_between_window_and_vectors(agrees):
    config = CausalLongShortAttentionConfig(dim=C, heads=H, window=4, chunk=3, slots=2, distance_bias=True)
    block, x = _random(CausalLongShortAttention(config)), torch.randn(2, 14, C, dtype=torch.float64)
    agrees(block, lambda x: _causal_plain(block, x), x)
    with torch.no_grad():
        before = block(x, Context())
        block.far_position.bias.add_(1)
        assert not torch.allclose(block(x, Context()), before)


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
    kept = {name: state.shape[1] for name, state in next(iter(streams.slots.values())).items()}
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
