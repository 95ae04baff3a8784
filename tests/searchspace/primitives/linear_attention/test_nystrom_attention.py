"""Nystrom attention against its formula, one sequence after another; a landmark a position is full attention."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.primitives.linear_attention.nystrom_attention import (
    NystromAttention,
    NystromAttentionConfig,
    pseudo_inverse,
)


def _softmax(scores):
    weights = scores.exp()
    return weights / weights.sum(1, keepdim=True)


def _inverse(A, iterations, norm=None):
    """The published iteration, with both norms as they are written, or with another."""
    Z = A.T / (A.abs().sum(0).max() * A.abs().sum(1).max() if norm is None else norm)
    one = torch.eye(len(A), dtype=A.dtype)
    for _ in range(iterations):
        Z = 0.25 * Z @ (13 * one - A @ Z @ (15 * one - A @ Z @ (7 * one - A @ Z)))
    return Z


def _plain(block, x, padding=None):
    """F A^+ (B V) of each head of each sequence over its real positions alone, and the convolution tap by tap."""
    config, (B, T, C) = block.config, x.shape
    H, D = config.heads, C // config.heads
    projected = F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    out = torch.zeros(B, T, H, D, dtype=x.dtype)
    real = torch.ones(B, T, dtype=torch.bool) if padding is None else padding
    for b in range(B):
        places = torch.arange(T)[real[b]].tolist()
        if not places:
            continue
        count = len(places)
        landmarks = min(config.landmarks, T)
        groups = [[t for t in range(count) if t * landmarks // count == m] for m in range(landmarks)]
        if config.segments == "padded":
            length = next(n for n in range(1, count + 1) if n * landmarks >= count)
            groups = [list(range(start, min(start + length, count))) for start in range(0, count, length)]
        groups = [group for group in groups if group]
        for h in range(H):
            q, k, v = projected.view(B, T, 3, H, D)[b, places, :, h].unbind(1)
            Ql, Kl = (torch.stack([part[group].mean(0) for group in groups]) for part in (q, k))
            left, middle = _softmax(q @ Kl.T / D**0.5), _softmax(Ql @ Kl.T / D**0.5)
            rows = left @ _inverse(middle, config.iterations) @ _softmax(Ql @ k.T / D**0.5) @ v
            if config.exact and count <= landmarks:
                rows = _softmax(q @ k.T / D**0.5) @ v
            for n, t in enumerate(places):
                beside = torch.zeros(D, dtype=x.dtype)
                for tap in range(config.kernel):
                    s = t + tap - config.kernel // 2
                    if s in places:
                        beside = beside + block.taps[h, 0, tap, 0] * v[places.index(s)]
                out[b, t, h] = rows[n] + beside
    return F.linear(out.flatten(2), block.output.weight, block.output.bias)


@pytest.mark.parametrize("segments", ["balanced", "padded"])
@pytest.mark.parametrize("kernel", [0, 5])
@pytest.mark.parametrize(
    ("length", "landmarks", "exact"),
    [(1, 4, False), (3, 4, False), (3, 4, True), (12, 4, False), (14, 4, False), (14, 4, True), (9, 1, False)],
)
def test_equals_its_formula(agrees, length, landmarks, exact, kernel, segments):
    sizes = {"dim": 8, "heads": 2, "landmarks": landmarks, "kernel": kernel}
    config = NystromAttentionConfig(**sizes, segments=segments, exact=exact, bias=True)
    block = NystromAttention(config).double()
    x = torch.randn(2, length, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, length) < 0.6
    padding[0, 0] = True
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


def test_taps_that_reach_beyond_both_ends_have_their_gradients_in_single_precision_too():
    block, x = NystromAttention(NystromAttentionConfig(dim=64, heads=1, kernel=65)), torch.randn(2, 22, 64)
    gradients = []
    for dtype in (torch.float64, torch.float32):
        block.to(dtype).zero_grad()
        block(x.to(dtype), Context()).square().sum().backward()
        gradients.append(block.taps.grad.to(torch.float64, copy=True))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def _released(block, x, padding, *, zeros=False):
    """Padding is hidden from B alone, and all matrices start from the largest column of any.

    zeros: queries, keys and values of padding are zeros, as in the authors' code; their landmarks count them.
    """
    config, (B, T, C) = block.config, x.shape
    H, D, M = config.heads, C // config.heads, config.landmarks
    q, k, v = F.linear(x, block.query_key_value.weight).view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
    if zeros:
        q, k, v = (part * padding[:, None, :, None] for part in (q, k, v))
    Ql, Kl = (part.unflatten(2, (M, T // M)).mean(3) for part in (q, k))
    middle = [[_softmax(Ql[b, h] @ Kl[b, h].T / D**0.5) for h in range(H)] for b in range(B)]
    norm = max(A.sum(0).max() for heads in middle for A in heads)
    out = F.conv2d(v, block.taps, padding=(config.kernel // 2, 0), groups=H)
    for b in range(B):
        for h in range(H):
            keys = (Ql[b, h] @ k[b, h].T / D**0.5).masked_fill(~padding[b], -torch.inf)
            left = _softmax(q[b, h] @ Kl[b, h].T / D**0.5) @ _inverse(middle[b][h], config.iterations, norm)
            out[b, h] = out[b, h] + left @ _softmax(keys) @ v[b, h]
    return F.linear(out.transpose(1, 2).flatten(2), block.output.weight)


def test_as_released_one_sample_starts_the_iteration_of_all_and_padding_is_hidden_from_the_values_sums_alone(agrees):
    config = NystromAttentionConfig(dim=8, heads=2, landmarks=4, kernel=5, released=True)
    block, x = NystromAttention(config).double(), torch.randn(3, 12, 8, dtype=torch.float64)
    padding = torch.rand(3, 12) < 0.6
    padding[:, 0] = True
    agrees(block, lambda x: _released(block, x, padding), x, Context(padding=padding))


def test_padding_counts_as_zeros_as_in_the_code_of_the_authors(agrees):
    options = {"coupled": True, "padding_counts": "zeros"}
    config = NystromAttentionConfig(dim=8, heads=2, landmarks=4, kernel=5, **options)
    block, x = NystromAttention(config).double(), torch.randn(3, 12, 8, dtype=torch.float64)
    padding = torch.rand(3, 12) < 0.6
    padding[:, 0] = True
    agrees(block, lambda x: _released(block, x, padding, zeros=True), x, Context(padding=padding))


@pytest.mark.parametrize("length", [1, 3, 10, 12])
def test_zeros_in_front_fill_the_segments_and_count(agrees, length):
    """lucidrains/nystrom-attention: without a mask, the result is that of a longer sequence that starts with zeros."""
    config = NystromAttentionConfig(dim=8, heads=2, landmarks=4, kernel=5, coupled=True, segments="front")
    block, x = NystromAttention(config).double(), torch.randn(3, length, 8, dtype=torch.float64)

    def filled(x):
        longer = F.pad(x, (0, 0, -length % 4, 0))
        return _released(block, longer, torch.ones(longer.shape[:2], dtype=torch.bool))[:, -length:]

    agrees(block, filled, x)


def test_zeros_in_front_of_padded_sequences_do_not_count():
    block = NystromAttention(NystromAttentionConfig(dim=8, heads=2, landmarks=4, kernel=5, segments="front"))
    x, padding = torch.zeros(1, 12, 24, dtype=torch.float64), torch.ones(1, 10, dtype=torch.bool)
    # 12 positions in segments of 3: the first segment holds two zeros and one position.
    means, real = block._segments(x, F.pad(padding, (2, 0), value=False))
    assert means[0, 0].tolist() == [0, 0, 1] + [0] * 9
    assert real.all()


@pytest.mark.parametrize("options", [{"coupled": True}, {"padding_counts": True}])
def test_each_half_of_the_released_form_can_be_had_alone(options):
    """Together they are the released form; without padding, and for one matrix, each alone is the paper's."""
    torch.default_generator.manual_seed(0)
    blocks = {}
    for name, more in {"paper": {}, "half": options, "released": {"released": True}}.items():
        torch.default_generator.manual_seed(0)
        config = NystromAttentionConfig(dim=8, heads=2, landmarks=4, iterations=2, **more)
        blocks[name] = NystromAttention(config).double()
    x, padding = torch.randn(3, 12, 8, dtype=torch.float64), torch.rand(3, 12) < 0.6
    padding[:, 0] = True
    outs = {name: (block(x, Context()), block(x, Context(padding=padding))) for name, block in blocks.items()}
    like = "released" if "coupled" in options else "paper"
    assert outs["half"][0].equal(outs[like][0])
    assert not any(outs["half"][1].equal(outs[name][1]) for name in ("paper", "released"))
    assert not blocks["half"].config.hides_padding


def test_both_kinds_of_segments_are_the_same_where_the_landmarks_divide_the_length():
    blocks, x = [], torch.randn(2, 12, 8, dtype=torch.float64)
    for segments in ("balanced", "padded"):
        torch.default_generator.manual_seed(0)
        blocks.append(NystromAttention(NystromAttentionConfig(dim=8, landmarks=4, segments=segments)).double())
    assert blocks[0](x, Context()).equal(blocks[1](x, Context()))
    assert not torch.allclose(blocks[0](x[:, :10], Context()), blocks[1](x[:, :10], Context()))


def test_a_landmark_for_every_position_is_full_attention():
    torch.default_generator.manual_seed(0)
    block = NystromAttention(
        NystromAttentionConfig(dim=8, heads=2, landmarks=10, kernel=0, iterations=1, exact=True)
    ).double()
    x = 2 * torch.randn(2, 10, 8, dtype=torch.float64)
    q, k, v = F.linear(x, block.query_key_value.weight).view(2, 10, 3, 2, 4).permute(2, 0, 3, 1, 4)
    full = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block(x, Context()), F.linear(full, block.output.weight), atol=1e-9, rtol=1e-9)


def test_the_pseudo_inverse_converges_on_that_of_linear_algebra():
    torch.default_generator.manual_seed(0)
    A = (2 * torch.randn(3, 6, 6, dtype=torch.float64)).softmax(2)
    torch.testing.assert_close(pseudo_inverse(A, 40), torch.linalg.pinv(A), atol=1e-9, rtol=1e-9)


def test_samples_of_a_batch_do_not_meet():
    torch.default_generator.manual_seed(0)
    block = NystromAttention(NystromAttentionConfig(dim=8, heads=2, landmarks=3)).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    loud = torch.cat([x[:1], 50 * x[1:]])
    torch.testing.assert_close(block(loud, Context())[:1], block(x, Context())[:1], atol=1e-12, rtol=1e-12)
