"""The hourglass against the definition of the Funnel-Transformer, position by position, with dense relative scores."""

import random

import pytest
import torch
from torch.nn import functional as F

from searchspace.combinators.pooling import Pooling, upsampled
from searchspace.contract import Context, Given, Streams
from searchspace.cost import Shape
from searchspace.language.language import parse
from searchspace.language.schema import complete
from searchspace.model.build import build
from searchspace.primitives.attention.heads import Source, with_source
from searchspace.registry import configure
from searchspace.space.space import Space
from searchspace.testing import count_flops, kept_bytes
from searchspace.tree import Block

C, H = 8, 2
LAYER = """
- residual: {order: post, norm: {layer_norm: {eps: 1.0e-9}}, of: {funnel_attention: {heads: 2 FIRST}}}
- residual: {order: post, norm: {layer_norm: {eps: 1.0e-9}}, of: {feed_forward: {activation: gelu}}}
"""
ORDINARY = LAYER.replace("funnel_attention: {heads: 2 FIRST}", "attention: {heads: 2}")


def _hourglass(stages, decoder=0, layer=LAYER, **fields):
    """A configured hourglass of `stages` stages of one layer each (or of the texts given), and the block."""
    torch.default_generator.manual_seed(0)
    layer = layer.replace("FIRST", f", separate_first: {str(fields.get('separate_first', True)).lower()}")
    body = parse(f"kind: encoder\nwidth: {C}\nvocabulary: 9\nbody:{_indented(layer)}").root.fields["body"]
    stages = (body,) * stages if isinstance(stages, int) else stages
    values = {"stages": stages, "decoder": body * decoder, **fields}
    configured = configure(complete(Block("hourglass", values)), Given(dim=C))
    return configured, configured.build().double()


def _indented(layer):
    return layer.replace("\n", "\n  ").rstrip() + "\n"


def _dense(block, x, y, queries, keys, segments, real, separate):
    """Funnel attention with R written out for every pair; real: [B, S]."""
    D = C // H
    q, k, v = (
        part.unflatten(2, (H, D)) for part in (F.linear(x, block.query.weight), *block.key_value(y).chunk(2, dim=2))
    )
    distance = (queries[:, None] - keys[None, :]).double()[..., None]  # [T, S, 1]
    angles = distance * 10000.0 ** (-torch.arange(C // 2, dtype=torch.float64) / (C / 2))
    R = block.distance(torch.cat([angles.sin(), angles.cos()], dim=2)).unflatten(2, (H, D))
    relative = torch.einsum("bihd,ijhd->bhij", q + block.distance_bias[:, 0], R)
    same = (segments[0][:, :, None] == segments[1][:, None, :]).long()  # [B, T, S]
    relative = relative + torch.einsum("bihd,bijhd->bhij", q + block.segment_bias[:, 0], block.segment[same])
    if separate:
        relative[:, :, 0], relative[:, :, :, 0] = 0, 0
    scores = torch.einsum("bihd,bjhd->bhij", q + block.content_bias[:, 0], k) + relative
    weights = (scores / D**0.5).masked_fill(~real[:, None, None], -torch.inf).softmax(3)
    return block.output(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


def _layer(stack, x, y, keys, others, real, positions, segments, separate):
    """h = LN(h' + Attn(Q = h', K = V = h)), then the feed-forward."""
    attention, feed_forward = stack
    out = _dense(attention.of[0], x, y, positions, keys, (segments, others), real, separate)
    return feed_forward(attention.norm(x + out, Context()), Context())


def _members(length, separate, truncate):
    """For each pooled position those that it is made of, by the words of the definition."""
    line = list(range(length))
    if separate:
        line = [0, *line[:-1]] if truncate else [0, *line]
    return [line[t : t + 2] for t in range(0, len(line), 2)]


def _funnel(block, x, segments, padding):
    """(output, positions, padding) of the stages and the decoder, from the definition alone."""
    config = block.config
    positions = torch.arange(x.shape[1])
    padding = torch.ones(x.shape[:2], dtype=torch.bool) if padding is None else padding
    whole, original = x, (positions, segments, padding)
    for b, stage in enumerate(block.stages):
        source = (x, positions, segments, padding)
        if b:
            members = _members(x.shape[1], config.separate_first, config.truncate)
            pooled = []
            for group in members:
                every = config.pool_padding
                real = [[n for n in dict.fromkeys(group) if every or padding[i, n]] for i in range(len(x))]
                rows = [x[i, near] if near else torch.zeros(1, C, dtype=x.dtype) for i, near in enumerate(real)]
                pooled.append(torch.stack([r.mean(0) if config.pool == "mean" else r.amax(0) for r in rows]))
            if config.separate_first:
                rest = positions[1:-1] if config.truncate else positions[1:]
                positions = torch.cat([torch.tensor([-(2**b) + 1]), rest[::2]])
            else:
                positions = positions[::2]
            segments = torch.stack([segments[:, group[0]] for group in members], dim=1)
            any_or_all = all if config.pooled_padding == "min" else any
            padding = torch.tensor([[any_or_all(bool(p[n]) for n in group) for group in members] for p in padding])
            x = torch.stack(pooled, dim=1)
            if not config.pool_query_only:
                source = (x, positions, segments, padding)
        x = _layer(stage, x, *source, positions, segments, config.separate_first)
        whole = x if b == 0 else whole
    if not block.decoder:
        return x, positions, padding
    times, long = 2 ** (len(block.stages) - 1), torch.zeros_like(whole)
    for t in range(whole.shape[1]):
        short = (t - 1) // times + 1 if config.separate_first and t else t // times
        if short < x.shape[1]:
            long[:, t] = x[:, short]
    x, (positions, segments, padding) = long + whole, original
    x = _layer(block.decoder, x, x, *original, positions, segments, config.separate_first)
    return x, positions, padding


CASES = [
    {},
    {"truncate": False},
    {"separate_first": False},
    {"pool": "max"},
    {"pool_query_only": False},
    {"pooled_padding": "max"},
    {"pool_padding": True},
    {"separate_first": False, "pool": "max", "pooled_padding": "max"},
]


@pytest.mark.parametrize("length", [1, 8, 13])
@pytest.mark.parametrize("fields", CASES, ids=str)
@pytest.mark.parametrize("decoder", [0, 1])
def test_equals_the_definition(fields, length, decoder):
    _, block = _hourglass(3, decoder, **fields)
    x = torch.randn(2, length, C, dtype=torch.float64, requires_grad=True)
    segments = (torch.arange(length) > length // 2).long().expand(2, -1)
    for padding in (None, (torch.arange(length) < torch.tensor([[length], [length - length // 3]]))):
        context = Context(padding=padding, segments=segments, positions=torch.arange(length))
        expected, positions, real = _funnel(block, x, segments, padding)
        found = block(x, context)
        weights = torch.randn_like(found) * real[..., None]
        torch.testing.assert_close(found * real[..., None], expected * real[..., None], atol=1e-9, rtol=1e-9)
        assert context.positions.tolist() == positions.tolist()
        assert context.padding is None or context.padding.equal(real)
        inputs = [x, *block.parameters()]
        gradients = torch.autograd.grad((found * weights).sum(), inputs, materialize_grads=True)
        wanted = torch.autograd.grad((expected * weights).sum(), inputs, materialize_grads=True)
        for gradient, want in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient, want, atol=1e-9, rtol=1e-9)


def test_one_stage_is_the_blocks_alone():
    _, block = _hourglass(1)
    x = torch.randn(2, 5, C, dtype=torch.float64)
    torch.testing.assert_close(block(x, Context()), block.stages[0](x, Context()))


@pytest.mark.parametrize("length", [7])
@pytest.mark.parametrize("layer", [LAYER, ORDINARY], ids=["funnel_attention", "attention"])
@pytest.mark.parametrize("fields", [*CASES, {"decoder": 1}], ids=str)
def test_costs_are_those_of_the_built_module(fields, layer, length):
    configured, block = _hourglass(3, **{"layer": layer, **fields})
    x = torch.randn(2, length, C, requires_grad=True)
    block = block.float()
    cost = configured.cost(Shape(batch=2, length=length))
    assert cost.parameters == sum(parameter.numel() for parameter in block.parameters())
    assert (cost.flops, cost.training_flops) == count_flops(lambda: block(x, Context()))
    assert configured.after(Shape(length=length)).length == block(x, Context()).shape[1]


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_activations_are_near_what_autograd_keeps(pool):
    configured, block = _hourglass(3, 1, pool=pool)
    x = torch.randn(2, 40, C, requires_grad=True)
    kept = kept_bytes(lambda: block.float()(x, Context()), block.parameters())
    assert configured.cost(Shape(batch=2, length=40)).activation_bytes == pytest.approx(kept, rel=0.1)


def test_layers_of_a_stage_may_be_used_several_times():
    """B6-3x2-3x2 in small: only the first use of the first layer reads what was pooled."""
    shared = "\n- repeat:\n    times: 2\n    share_weights: true\n    of:" + _indented(_indented(_indented(LAYER)))
    configured, block = _hourglass(2, layer=shared)
    x, context = torch.randn(2, 9, C, dtype=torch.float64), Context(positions=torch.arange(9))
    first, second = (stage[0].of[0] for stage in block.stages)
    long = first(first(x, context), context)
    inner = block.pooling.context(long, context)
    pooled = second(block.pooling.sequence(long, None), with_source(inner, Source(long, context.positions)))
    torch.testing.assert_close(block(x, Context()), second(pooled, inner))
    cost = configured.cost(Shape(batch=2, length=9))
    assert cost.parameters == sum(parameter.numel() for parameter in block.parameters())
    single = x.float().requires_grad_()
    block = block.float()
    assert (cost.flops, cost.training_flops) == count_flops(lambda: block(single, Context()))


@pytest.mark.parametrize("separate", [True, False])
def test_padding_is_invisible_where_a_pair_is_real_as_soon_as_one_is(separate):
    for length in range(1, 9):
        fields = {"pooled_padding": "max", "truncate": False, "separate_first": separate}
        configured, block = _hourglass(3, 1, **fields)
        assert configured.config.hides_padding
        x = torch.randn(1, length + 5, C, dtype=torch.float64)
        padding = torch.arange(length + 5)[None] < length
        found = block(x, Context(padding=padding))[:, :length]
        torch.testing.assert_close(found, block(x[:, :length], Context()), atol=1e-9, rtol=1e-9)


def test_a_wholly_padded_sequence_gives_no_nan():
    for pool in ("mean", "max"):
        _, block = _hourglass(3, 1, pool=pool)
        x = torch.randn(2, 6, C, dtype=torch.float64, requires_grad=True)
        y = block(x, Context(padding=torch.zeros(2, 6, dtype=torch.bool)))
        y.sum().backward()
        assert y.isfinite().all()
        assert x.grad.isfinite().all()


def test_a_compiled_copy_agrees():
    _, block = _hourglass(2, 1)
    x = torch.randn(2, 11, C, dtype=torch.float64)
    compiled = torch.compile(block, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, Context()), block(x, Context()), atol=1e-12, rtol=1e-12)


def test_pooling_keeps_a_class_token_and_leaves_a_last_odd_position_alone():
    x = torch.tensor([[[10.0], [1.0], [2.0], [3.0], [4.0]]])

    def pooled(separate, truncate, padding=None):
        return Pooling("mean", separate, truncate, "min").sequence(x, padding)[0, :, 0].tolist()

    assert pooled(False, False) == [5.5, 2.5, 4.0]
    assert pooled(True, True) == [10.0, 1.5, 3.0]
    assert pooled(True, False) == [10.0, 1.5, 3.5]
    assert pooled(False, False, torch.tensor([[True, True, True, False, False]])) == [5.5, 2.0, 0.0]


def test_positions_are_repeated_until_the_length_is_full():
    x = torch.tensor([[[1.0], [2.0], [3.0]]])

    def long(length, separate):
        return upsampled(x, 4, length, separate_first=separate)[0, :, 0].tolist()

    assert long(10, separate=False) == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert long(7, separate=True) == [1, 2, 2, 2, 2, 3, 3]
    assert long(12, separate=True) == [1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0, 0]


@pytest.mark.parametrize("first", ["feed_forward", "residual", "convolution"])
def test_refuses_a_stage_whose_first_block_cannot_read_what_was_pooled(first):
    attention = Block("attention", {"heads": 2})
    block = Block("residual", {"of": (attention,)}) if first == "residual" else Block(first, {})
    with pytest.raises(
        ValueError, match=f"stage 1 must begin with a block that can read the keys .*{first} cannot.* order post"
    ):
        _hourglass(((attention,), (block,)))
    _hourglass(((attention,), (block,)), pool_query_only=False)


def test_looks_both_ways_so_it_stands_in_no_decoder_and_reads_no_pieces():
    with pytest.raises(ValueError, match="hourglass looks ahead, so it cannot be part of a decoder"):
        configure(complete(Block("hourglass", {"stages": ((), ()), "decoder": ()})), Given(dim=C, causal=True))
    _, block = _hourglass(2)
    with pytest.raises(ValueError, match="looks both ways"):
        block(torch.randn(1, 4, C, dtype=torch.float64), Context(streams=Streams()))


def test_a_space_may_leave_pooling_stages_and_decoder_open():
    space = Space.parse(
        """
kind: encoder
width: 8
vocabulary: 9
body:
  hourglass:
    pool: !choice [mean, max]
    stages:
      - repeat: {times: !int {low: 1, high: 2}, of: {residual: {of: !choice [attention, feed_forward]}}}
      - [residual: {order: post, of: !choice [attention, funnel_attention]}]
    decoder: !choice [[], [residual: {of: attention}]]
"""
    )
    assert space.size().discrete == 32
    models = [build(space.sample(random.Random(seed)).architecture) for seed in range(6)]
    assert {model(torch.zeros(1, 9, dtype=torch.int64)).shape[1] for model in models} == {5, 9}
