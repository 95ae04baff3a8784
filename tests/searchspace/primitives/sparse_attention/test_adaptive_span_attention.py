"""Adaptive span attention against its definition written out pair by pair, its loss, and how its spans move."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.model.build import build, cost
from searchspace.primitives.sparse_attention.adaptive_span_attention import (
    AdaptiveSpanAttention,
    AdaptiveSpanAttentionConfig,
)


def _block(**options):
    return AdaptiveSpanAttention(AdaptiveSpanAttentionConfig(dim=8, causal=True, heads=2, **options)).double()


def _heads(block, x):
    B, T = x.shape[:2]
    return F.linear(x, block.query_key_value.weight).view(B, T, 3, block.config.heads, -1).unbind(2)


def _span(block, x, h):
    """z of one head at one position, x: [C]."""
    if block.config.dynamic:
        return block.config.span * torch.sigmoid(block.spans.weight[h] @ x + block.spans.bias[h])
    return block.config.span * block.ratios[h, 0]


def _plain(block, x, padding=None):
    config, (B, T, C) = block.config, x.shape
    (q, k, v), D = _heads(block, x), C // config.heads
    out = []
    for b in range(B):
        for i in range(T):
            for h in range(config.heads):
                z, nothing = _span(block, x[b, i], h), x.new_zeros(D)
                masks, scores, values = [], [], [nothing]
                for distance in range(config.span):
                    j, mask = i - 1 - distance, torch.clamp((config.ramp + z - distance) / config.ramp, 0, 1)
                    real = config.before == "zeros" if j < 0 else padding is None or padding[b, j]
                    if real and (mask > 0 or config.softmax == "reach"):
                        key, value = (k[b, j, h], v[b, j, h]) if j >= 0 else (nothing, nothing)
                        masks.append(mask)
                        scores.append(q[b, i, h] @ (key + block.places[distance]) / D**0.5)
                        values.append(value)
                weights = torch.softmax(torch.stack(scores), 0) * torch.stack(masks) if scores else x.new_zeros(0)
                out.append((weights / (weights.sum() + 1e-8)) @ torch.stack(values)[1:])
    return F.linear(torch.stack(out).view(x.shape), block.output.weight)


@pytest.mark.parametrize("before", ["nothing", "zeros"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("span", "ramp", "softmax"), [(1, 1, "span"), (5, 3, "span"), (5, 3, "reach"), (13, 4, "span"), (13, 4, "reach")]
)
def test_equals_its_definition(agrees, span, ramp, softmax, dynamic, before):
    block = _block(span=span, ramp=ramp, dynamic=dynamic, softmax=softmax, before=before)
    if not dynamic:
        with torch.no_grad():
            block.ratios.copy_(torch.tensor([[0.3], [0.55]]))
    for length in (1, 15):  # one sequence, because the definition runs pair by pair
        _agrees_where_used(agrees, block, torch.randn(1, length, 8, dtype=torch.float64))
    x, padding = torch.randn(2, 15, 8, dtype=torch.float64), torch.rand(2, 15) < 0.7
    padding[0, :3] = False
    _agrees_where_used(agrees, block, x, padding)


def _agrees_where_used(agrees, block, x, padding=None):
    """At length 1 some parameters are not reached at all; a zero of each makes their gradients zeros, not none."""

    def plain(x):
        return _plain(block, x, padding) + 0 * sum(parameter.sum() for parameter in block.parameters())

    agrees(block, plain, x, Context(padding=padding))


def test_the_first_position_reads_nothing_and_the_others_not_themselves():
    block, x = _block(), torch.randn(1, 6, 8, dtype=torch.float64, requires_grad=True)
    out = block(x, Context())
    assert not out[:, 0].any()
    last = _heads(block, x)[2][0, 5]  # the values of the last position
    (gradient,) = torch.autograd.grad(out.square().sum(), last, allow_unused=True)
    assert gradient is None


def test_full_spans_are_a_window_of_what_came_before():
    block = _block(span=9, initial=1.0)
    with torch.no_grad():
        block.places.zero_()
    x = torch.randn(2, 30, 8, dtype=torch.float64)
    q, k, v = (part.transpose(1, 2) for part in _heads(block, x))
    i, j = torch.arange(30)[:, None], torch.arange(30)
    window = (j < i) & (j >= i - 9)
    full = F.scaled_dot_product_attention(q[:, :, 1:], k, v, attn_mask=window[1:]).transpose(1, 2).flatten(2)
    # 1e-8 in the normaliser
    torch.testing.assert_close(block(x, Context())[:, 1:], F.linear(full, block.output.weight), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_loss_is_the_mean_span_and_only_while_training(dynamic):
    block = _block(span=20, span_weight=0.5, initial=0.25, dynamic=dynamic)
    x, padding = torch.randn(2, 7, 8, dtype=torch.float64), torch.rand(2, 7) < 0.6
    context = Context(padding=padding)
    block.eval()(x, context)
    assert not context.losses
    block.train()(x, context)
    if dynamic:
        spans = [_span(block, x[b, i], h) for b in range(2) for i in range(7) if padding[b, i] for h in range(2)]
        expected = 0.5 * torch.stack(spans).mean()
    else:
        expected = torch.tensor(0.5 * 20 * 0.25, dtype=torch.float64)
    torch.testing.assert_close(context.loss(), expected, atol=1e-12, rtol=1e-12)
    assert [0.5 * span for span in context.statistics["attention_span"]] == pytest.approx([expected.item()] * 2)


def test_spans_grow_from_zero_and_come_back_from_beyond_their_bounds():
    block, x = _block(span=16, span_weight=0.0).train(), torch.randn(1, 20, 8, dtype=torch.float64)
    block(x, Context()).square().sum().backward()
    assert block.ratios.grad.abs().min() > 0
    with torch.no_grad():
        block.ratios.copy_(torch.tensor([[-0.75], [1.5]]))
    before = block.eval()(x, Context())
    assert block.ratios.flatten().tolist() == [-0.75, 1.5]
    after = block.train()(x, Context())
    assert block.ratios.flatten().tolist() == [0.0, 1.0]
    torch.testing.assert_close(after, before)


def test_a_strong_loss_drives_the_spans_to_zero_and_holds_them_there():
    block, x = _block(span=16, span_weight=1.0, initial=0.8).train(), torch.randn(1, 20, 8, dtype=torch.float64)
    optimiser = torch.optim.SGD([block.ratios], lr=0.02)
    for _ in range(12):
        context = Context()
        block(x, context)
        optimiser.zero_grad()
        context.loss().backward()
        optimiser.step()
    assert block.ratios.min() > -0.2
    block(x, Context())
    assert not block.ratios.any()


def test_a_block_that_is_called_twice_in_a_step_trains():
    block, x = _block(span_weight=1.0).train(), torch.randn(1, 6, 8, dtype=torch.float64)
    context = Context()
    (block(block(x, context), context).sum() + context.loss()).backward()
    assert block.ratios.grad.isfinite().all()


@pytest.mark.parametrize("before", ["nothing", "zeros"])
def test_without_gradients_the_work_ends_with_the_longest_span(before):
    block = _block(span=40, ramp=4, initial=0.125, before=before).eval()
    x = torch.randn(2, 60, 8, dtype=torch.float64)
    expected = block(x, Context())
    with torch.no_grad():
        torch.testing.assert_close(block(x, Context()), expected, atol=1e-12, rtol=1e-12)
        streams, pieces = Streams(), []
        for piece in x.split([1, 30, 2, 27], dim=1):
            streams.rewind()
            pieces.append(block(piece, Context(streams=streams)))
            streams.length += piece.shape[1]
        with FlopCounterMode(display=False) as counter:
            block(x, Context())
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, atol=1e-12, rtol=1e-12)
    near = AdaptiveSpanAttentionConfig(dim=8, causal=True, heads=2, span=9, before=before)
    assert counter.get_total_flops() == AdaptiveSpanAttention.cost(near, Shape(batch=2, length=60)).flops


def test_layers_share_the_vectors_of_distances():
    block = "{adaptive_span_attention: {heads: 2, span: 6}}"
    text = f"kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {{repeat: {{times: 3, of: {block}}}}}\n"
    model = build(text)
    layers = [layer for layer in model.modules() if isinstance(layer, AdaptiveSpanAttention)]
    assert (len(layers), len({id(layer.places) for layer in layers})) == (3, 1)
    assert cost(text).parameters == sum(parameter.numel() for parameter in model.parameters())


def test_dynamic_spans_start_where_they_are_told_to():
    for initial, ratio in ((0.0, 0.018), (0.5, 0.5), (1.0, 0.982)):
        block = _block(dynamic=True, initial=initial)
        assert torch.sigmoid(block.spans.bias).tolist() == pytest.approx([ratio] * 2, abs=1e-3)


def test_says_what_does_not_fit():
    for options, message in (
        ({"span": 0}, "span must be at least 1, but got 0"),
        ({"ramp": 0}, "ramp must be at least 1, but got 0"),
        ({"span_weight": -1.0}, r"span_weight must be at least 0, but got -1\.0"),
        ({"initial": 1.5}, r"initial must lie in \[0, 1\], but got 1\.5"),
    ):
        with pytest.raises(ValueError, match=message):
            AdaptiveSpanAttentionConfig(dim=8, **options)
