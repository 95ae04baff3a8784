"""Nadaraya-Watson attention against its formula, one query and one key at a time."""

import math

import pytest
import torch

from searchspace.contract import Context, Streams
from searchspace.primitives.attention.attention import Attention, AttentionConfig
from searchspace.primitives.attention.nadaraya_watson import NadarayaWatson, NadarayaWatsonConfig

WEIGHTS = {
    "gaussian": lambda u: (-u * u / 2).exp(),
    "boxcar": lambda u: 1.0 * (u <= 1),
    "epanechnikov": lambda u: (1 - u * u) * (u <= 1),
    "triangular": lambda u: (1 - u) * (u <= 1),
}
KERNELS = pytest.mark.parametrize("kernel", WEIGHTS)
SWITCHES = [
    {"learned": learned, "project": project} for learned in ("none", "head", "dimension") for project in (False, True)
]


def _built(dim=8, **fields):
    torch.default_generator.manual_seed(0)
    block = NadarayaWatson(NadarayaWatsonConfig(dim=dim, **fields)).double()
    if block.inverse is not None:
        with torch.no_grad():
            block.inverse.mul_(torch.rand_like(block.inverse) + 0.5)
    return block


def _length(difference):
    square = difference.square().sum()
    return square.sqrt() if square > 0 else square  # the root has no slope at zero


def _plain(block, x, y, allowed):
    heads, D = block.config.heads, block.config.dim // block.config.heads
    q, k, v = x, y, y
    if block.config.project:
        q, (k, v) = block.query(x), block.key_value(y).chunk(2, dim=2)
    batch = []
    for b in range(x.shape[0]):
        rows = []
        for i in range(x.shape[1]):
            read = []
            for h in range(heads):
                d = slice(h * D, (h + 1) * D)
                w = 1 / block.config.h if block.inverse is None else block.inverse[h, 0]
                near = [j for j in range(y.shape[1]) if allowed(b, i, j)]
                weights = [WEIGHTS[block.config.kernel](_length((q[b, i, d] - k[b, j, d]) * w)) for j in near]
                total = sum(weights)
                mean = x.new_zeros(D)
                if near and total > 0:
                    mean = sum(a * v[b, j, d] for a, j in zip(weights, near, strict=True)) / total
                read.append(mean)
            rows.append(torch.cat(read))
        batch.append(torch.stack(rows))
    out = torch.stack(batch)
    return out if block.output is None else block.output(out)


@pytest.mark.parametrize("fields", SWITCHES, ids=lambda fields: f"{fields['learned']}-{fields['project']}")
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov", "triangular"])
def test_equals_its_formula_and_padded_keys_are_not_read(agrees, kernel, fields):
    block = _built(causal=True, heads=2, kernel=kernel, bandwidth=2.0, **fields)
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    padding = torch.ones(3, 5, dtype=torch.bool)
    padding[0, 3:] = padding[1, :2] = padding[2, :] = False
    agrees(block, lambda x: _plain(block, x, x, lambda b, i, j: j <= i and padding[b, j]), x, Context(padding=padding))


@KERNELS
def test_looks_both_ways_where_nothing_forbids_it(agrees, kernel):
    block = _built(heads=2, kernel=kernel)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x, x, lambda b, i, j: True), x)


@KERNELS
@pytest.mark.parametrize("project", [False, True])
def test_reads_an_encoders_output_where_it_is_real(agrees, kernel, project):
    if kernel == "boxcar" and project:
        return
    block = _built(causal=True, memory=True, over="memory", heads=2, kernel=kernel, project=project, bandwidth=1.5)
    x, memory = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    context = Context(memory=memory, memory_padding=real)
    agrees(block, lambda x: _plain(block, x, memory, lambda b, i, j: bool(real[b, j])), x, context)


@KERNELS
def test_streaming_keeps_the_memory_with_its_padding_and_beams_carry_both(kernel):
    block = _built(causal=True, memory=True, over="memory", heads=2, kernel=kernel)
    x, memory = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    whole, streams, index = block(x, Context(memory=memory, memory_padding=real)), Streams(), torch.tensor([1, 0])
    first = block(x[:, :1], Context(memory=memory, memory_padding=real, streams=streams))
    torch.testing.assert_close(first, whole[:, :1])
    streams.reorder(index)
    streams.rewind()
    torch.testing.assert_close(block(x[index, 1:], Context(streams=streams)), whole[index, 1:])


@KERNELS
def test_is_the_published_regression_from_places_to_answers(kernel):
    """The memory holds (place, answer) in its two channels; maps pick the place for keys, the answer for values."""
    soft = kernel != "boxcar"
    block = _built(dim=2, memory=True, over="memory", heads=1, kernel=kernel, bandwidth=0.3, project=soft)
    pairs = torch.stack([torch.linspace(0, 3, 20), torch.linspace(0, 3, 20).sin()], dim=1).double()
    at = torch.tensor([[[0.4, 0.0], [1.7, 0.0], [2.9, 0.0]]], dtype=torch.float64)
    if not soft:  # no maps: a regression of each channel on the pair itself
        found = block(at, Context(memory=pairs[None]))[0]
        for query, mean in zip(at[0], found, strict=True):
            near = [pair for pair in pairs if (pair - query).norm() <= 0.3]
            torch.testing.assert_close(mean, sum(near) / len(near) if near else torch.zeros_like(mean))
        return
    place, answer = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double(), torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double()
    with torch.no_grad():
        block.query.weight.copy_(place)
        block.key_value.weight.copy_(torch.cat([place, answer]))
        block.output.weight.copy_(torch.eye(2))
    found = block(at, Context(memory=pairs[None]))[0, :, 0]
    for query, mean in zip((0.4, 1.7, 2.9), found, strict=True):
        weights = WEIGHTS[kernel]((query - pairs[:, 0]).abs() / 0.3)
        torch.testing.assert_close(mean, (weights * pairs[:, 1]).sum() / weights.sum())


@KERNELS
def test_a_wide_bandwidth_is_the_running_mean(kernel):
    block, x = _built(causal=True, kernel=kernel, bandwidth=1e9), torch.randn(2, 6, 8, dtype=torch.float64)
    mean = x.cumsum(1) / torch.arange(1, 7).view(1, 6, 1)
    torch.testing.assert_close(block(x, Context()), mean, atol=1e-8, rtol=1e-8)


def test_a_gaussian_over_keys_of_one_length_is_dot_product_attention():
    block = _built(causal=True, heads=2, project=True, bandwidth=4**0.25)  # h^2 = sqrt(D)
    full = Attention(AttentionConfig(dim=8, causal=True, heads=2)).double()
    with torch.no_grad():  # keys (cos, sin, cos, sin) of angles that one channel of the input says
        x = torch.randn(1, 7, 8, dtype=torch.float64)
        x[..., 0], x[..., 1] = x[..., 0].cos(), x[..., 0].sin()
        block.key_value.weight[:8].zero_()
        block.key_value.weight[range(8), [0, 1] * 4] = 1.0
    full.load_state_dict(block.state_dict())
    torch.testing.assert_close(block(x, Context()), full(x, Context()))


def test_the_bandwidth_is_learned_as_its_inverse_from_where_it_is_told_to_start():
    assert NadarayaWatsonConfig(dim=8, heads=2).h == pytest.approx(math.sqrt(8))
    one = NadarayaWatson(NadarayaWatsonConfig(dim=8, heads=2, learned="head", bandwidth=0.5)).inverse
    many = NadarayaWatson(NadarayaWatsonConfig(dim=8, heads=2, learned="dimension", bandwidth=0.5)).inverse
    assert (one.shape, many.shape) == ((2, 1, 1), (2, 1, 4))
    assert one.eq(2).all()
    assert many.eq(2).all()


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="the context has no lane 'memory'"):
        _built(memory=True, over="memory")(torch.randn(1, 2, 8, dtype=torch.float64), Context())
