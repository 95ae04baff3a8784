"""FAVOR+ against its definition, written out pair by pair, and against the softmax that it estimates."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from searchspace.contract import Context
from searchspace.model.build import build
from searchspace.primitives.linear_attention.favor_attention import FavorAttention, FavorAttentionConfig
from searchspace.primitives.linear_attention.random_features import gaussian_rows, orthogonal_rows
from searchspace.testing import kept_bytes


def _heads(block, x):
    """Queries, keys and values, each [B, T, H, D]."""
    config, (B, T, C) = block.config, x.shape
    projected = F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    return projected.view(B, T, 3, config.heads, C // config.heads).unbind(2)


def _weights(config, W, q, keys):
    """phi(q) . phi(k) for one query [D] and the keys it may read, [n, D]; the stabilisers see no other key."""
    D = q.shape[0]
    q, keys = q / D**0.25, keys / D**0.25
    if config.kernel == "relu":
        return (torch.clamp(keys @ W.T, min=0) + config.relu_epsilon) @ (
            torch.clamp(W @ q, min=0) + config.relu_epsilon
        )
    one, many = W @ q, keys @ W.T
    if config.stabiliser == "products":  # the released code: the maximum does not know the squares
        phi_q = (one - q @ q / 2 - one.max().detach()).exp() + config.epsilon
        squares = (keys * keys).sum(1, keepdim=True) / 2
        return ((many - squares - many.max().detach()).exp() + config.epsilon) @ phi_q
    one, many = one - q @ q / 2, many - (keys * keys).sum(1, keepdim=True) / 2
    phi_q = (one - one.max().detach()).exp() + config.epsilon
    return ((many - many.max().detach()).exp() + config.epsilon) @ phi_q


def _plain(block, x, padding=None):
    """Every output a weighted mean over the keys it may read, no sum shared between positions."""
    (B, T, _), config = x.shape, block.config
    q, k, v = _heads(block, x)
    W = block.projection.to(x.dtype)
    rows = []
    for b in range(B):
        for i in range(T):
            may = [j for j in range(i + 1 if config.causal else T) if padding is None or padding[b, j]]
            for h in range(config.heads):
                if not may:
                    rows.append(torch.zeros_like(q[b, i, h]))
                    continue
                weights = _weights(config, W, q[b, i, h], k[b, may, h])
                rows.append(weights @ v[b, may, h] / weights.sum())
    return F.linear(torch.stack(rows).view(x.shape), block.output.weight, block.output.bias)


FORMS = [
    {},
    {"epsilon": 0.0},
    {"kernel": "relu"},
    {"kernel": "relu", "relu_epsilon": 0.1},
    {"orthogonal": False},
    {"stabiliser": "products"},
]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_equals_its_definition(agrees, options, causal):
    config = FavorAttentionConfig(dim=8, causal=causal, heads=2, features=7, bias=True, **options)
    block = FavorAttention(config).double()
    x, padding = 2 * torch.randn(2, 70, 8, dtype=torch.float64), torch.rand(2, 70) < 0.7
    padding[0, :3] = False
    # The defaults whole and padded in both directions; other forms whole in one direction and padded in the other.
    if not options or causal == FORMS.index(options) % 2:
        agrees(block, lambda x: _plain(block, x), x[:1, :1])
        agrees(block, lambda x: _plain(block, x), x[:1])
    if not options or causal != FORMS.index(options) % 2:
        agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


def _softmax_attention(block, x):
    q, k, v = (part.transpose(1, 2) for part in _heads(block, x))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=block.config.causal)
    return F.linear(out.transpose(1, 2).flatten(2), block.output.weight)


@pytest.mark.parametrize("causal", [True, False])
def test_nears_the_softmax_as_one_over_the_root_of_the_features(causal):
    torch.default_generator.manual_seed(0)
    x, errors, counts = 0.5 * torch.randn(1, 20, 16), [], (32, 128, 512, 2048)
    for features in counts:
        squares = []
        for seed in range(24):
            config = FavorAttentionConfig(dim=16, causal=causal, heads=2, features=features, epsilon=0.0, seed=seed)
            torch.default_generator.manual_seed(1)
            block = FavorAttention(config)
            squares.append((block(x, Context()) - _softmax_attention(block, x)).square().mean().item())
        errors.append(math.sqrt(sum(squares) / len(squares)))
    slope = math.log(errors[-1] / errors[0]) / math.log(counts[-1] / counts[0])
    assert -0.62 < slope < -0.4, errors
    assert errors[-1] < errors[0] / 5


@pytest.mark.parametrize("draw", [gaussian_rows, orthogonal_rows])
def test_positive_features_are_an_unbiased_estimate_of_the_exponential(draw):
    # E[exp(w x)] = exp(|x|^2 / 2) for each x; without the signs of R some directions come out far off.
    W = torch.cat([draw(8, 4, (3, number)) for number in range(4000)]).double()
    for x in (*torch.eye(4).double(), *-torch.eye(4).double(), torch.full((4,), 0.5, dtype=torch.float64)):
        estimates = (W @ x).exp() / math.exp(0.5)
        assert estimates.mean().item() == pytest.approx(1, abs=0.03)


def test_orthogonal_rows_are_orthogonal_in_blocks_with_lengths_of_gaussian_vectors():
    W = orthogonal_rows(10, 4, (0, 0)).double()
    for block in W.split(4):
        gram = block @ block.T
        torch.testing.assert_close(gram, gram.diagonal().diag(), atol=1e-5, rtol=0)
    many = torch.cat([orthogonal_rows(8, 4, (1, number)) for number in range(500)])
    assert many.square().sum(1).mean().item() == pytest.approx(4, rel=0.05)
    assert W.float().equal(orthogonal_rows(10, 4, (0, 0)))
    assert not W.float().equal(orthogonal_rows(10, 4, (0, 1)))


def test_orthogonal_rows_estimate_better_than_independent_ones():
    x = torch.tensor([0.6, -0.3, 0.8, 0.5], dtype=torch.float64)

    def spread(draw):
        return torch.stack([(draw(4, 4, (0, n)).double() @ x).exp().mean() for n in range(3000)]).var()

    assert spread(orthogonal_rows) < 0.9 * spread(gaussian_rows)


@pytest.mark.parametrize("epsilon", [0.0, 1e-4])
def test_a_giant_key_later_on_leaves_the_past_to_the_bit(epsilon):
    """One maximum over the whole sequence would push every sum before that key down to zero."""
    block = FavorAttention(FavorAttentionConfig(dim=8, causal=True, heads=1, features=16, epsilon=epsilon))
    x = torch.randn(1, 90, 8)
    changed = x.clone()
    changed[:, 40] *= 60
    expected, found = block(x, Context()), block(changed, Context())
    assert found.isfinite().all()
    torch.testing.assert_close(found[:, :40], expected[:, :40], atol=1e-6, rtol=1e-5)
    assert expected[:, :40].abs().min() > 0


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("stabiliser", ["exponents", "products"])
def test_no_epsilon_gives_neither_zeros_nor_infinite_gradients(causal, stabiliser):
    """With large queries and keys all features of a pair may vanish in float32."""
    options = {"epsilon": 0.0, "stabiliser": stabiliser, "causal": causal}
    block = FavorAttention(FavorAttentionConfig(dim=8, heads=1, features=4, **options))
    x = (300 * torch.randn(2, 9, 8)).requires_grad_()
    out = block(x, Context())
    out.sum().backward()
    assert (out != 0).all()
    for each in (x, *block.parameters()):
        assert each.grad.isfinite().all()


def _step(block):
    """What an optimiser does, to this test."""
    with torch.no_grad():
        block.query_key_value.weight.mul_(0.999)


def test_draws_again_in_training_alone_and_carries_on_from_a_state_dict():
    config = FavorAttentionConfig(dim=8, causal=True, heads=2, redraw_every=3, seed=5)
    block, x = FavorAttention(config), torch.randn(1, 4, 8)
    drawn = [block.projection.clone()]
    for _ in range(8):
        block.train()(x, Context())
        drawn.append(block.projection.clone())
        block.eval()(x, Context())
        assert block.projection.equal(drawn[-1])
        _step(block)
    changed = [not after.equal(before) for before, after in itertools.pairwise(drawn)]
    assert changed == [False, False, False, True, False, False, True, False]
    resumed = FavorAttention(config)
    resumed.load_state_dict(block.state_dict())
    for model in (block, resumed):
        for _ in range(2):
            model.train()(x, Context())
            _step(model)
    assert resumed.projection.equal(block.projection)
    assert not resumed.projection.equal(drawn[-1])


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_counts_once_however_often_a_block_runs_in_it(fused):
    """Twice in a model, again for the backward pass, for two batches that add up: one matrix until the weights move."""
    block, x = FavorAttention(FavorAttentionConfig(dim=8, heads=2, redraw_every=1)).train(), torch.randn(1, 4, 8)
    optimiser = torch.optim.AdamW(block.parameters(), fused=fused)
    used = []
    for _ in range(3):
        for _ in range(2):
            found = block(block(x, Context()), Context())
            again = checkpoint(lambda x: block(block(x, Context()), Context()), x, use_reentrant=False)
            assert again.equal(found)
            again.sum().backward()
        used.append(block.projection.clone())
        optimiser.step()
    assert int(block.steps) == 3
    assert not any(used[i].equal(used[j]) for i in range(3) for j in range(i))


def test_frozen_weights_draw_again_once_for_each_pass_through_the_model():
    block, x = FavorAttention(FavorAttentionConfig(dim=8, heads=2, redraw_every=2)).train(), torch.randn(1, 4, 8)
    block.requires_grad_(False)
    used = []
    for _ in range(5):
        context = Context()
        block(block(x, context), context)  # twice in the model
        used.append(block.projection.clone())
    assert [not after.equal(before) for before, after in itertools.pairwise(used)] == [False, True, False, True]


def test_layers_of_one_seed_draw_matrices_of_their_own_and_models_the_same_ones():
    body = "{repeat: {times: 3, of: {favor_attention: {heads: 2, features: 4}}}}"
    text = f"kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {body}\n"
    first, second = (
        [layer.projection for layer in build(text).modules() if isinstance(layer, FavorAttention)] for _ in range(2)
    )
    assert not any(first[i].equal(first[j]) for i in range(3) for j in range(i))
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))


def test_memory_grows_with_the_length_and_not_with_its_square():
    block = FavorAttention(FavorAttentionConfig(dim=32, causal=True, heads=1, features=64))
    kept = []
    for length in (512, 2048):
        x = torch.randn(1, length, 32, requires_grad=True)
        kept.append(kept_bytes(lambda: block(x, Context()), block.parameters()))  # noqa: B023
    assert kept[1] < 4.1 * kept[0]


def test_says_what_does_not_fit():
    for kernel, options in (
        ("relu", {"epsilon": 0.1}),
        ("softmax", {"relu_epsilon": 0.1}),
        ("relu", {"stabiliser": "products"}),
    ):
        with pytest.raises(
            ValueError, match=f"{next(iter(options))} belongs to the kernel .*, but the kernel is {kernel}"
        ):
            FavorAttentionConfig(dim=8, kernel=kernel, **options)
