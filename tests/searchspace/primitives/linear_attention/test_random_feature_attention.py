"""Random feature attention, plain and gated, against its definition written out pair by pair."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from searchspace.contract import Context, Streams
from searchspace.model.build import build
from searchspace.primitives.linear_attention.gated_random_feature_attention import (
    GatedRandomFeatureAttention,
    GatedRandomFeatureAttentionConfig,
)
from searchspace.primitives.linear_attention.random_feature_attention import (
    RandomFeatureAttention,
    RandomFeatureAttentionConfig,
)
from searchspace.testing import kept_bytes


def _phi(block, x, h):
    """The features of one head's queries or keys, [n, D] -> [n, F]."""
    config = block.config
    W = block.projections[0, h].to(x.dtype) * block.scale[h] / config.temperature  # [M, D], one sigma a coordinate
    length = x.square().sum(1, keepdim=True).sqrt()
    released = config.form == "released"
    angles = (x / (length + 1e-3 if released else length)) @ W.T
    if released:
        return 0.1 * torch.cat([angles.sin(), angles.cos()], dim=1)
    if config.kernel == "arc_cosine":
        return torch.clamp(angles, min=0) / math.sqrt(config.features)
    return torch.cat([angles.sin(), angles.cos()], dim=1) / math.sqrt(config.features)


def _plain(block, x, causal, padding=None):
    """sum_j w_ij v_j / sum_j w_ij with w_ij = phi(q_i) . phi(k_j), times the gates in between where there are any."""
    config, (B, T, C) = block.config, x.shape
    D = C // config.heads
    projected = F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    q, k, v = projected.view(B, T, 3, config.heads, D).unbind(2)
    gates = torch.sigmoid(F.linear(x, block.gate.weight, block.gate.bias)) if hasattr(block, "gate") else None
    out = []
    for b in range(B):
        for h in range(config.heads):
            phi_q, phi_k = _phi(block, q[b, :, h], h), _phi(block, k[b, :, h], h)
            for i in range(T):
                may = torch.tensor([j for j in range(i + 1 if causal else T) if padding is None or padding[b, j]])
                weights = phi_k[may.long()] @ phi_q[i]
                if gates is not None:
                    after = gates[b, may.long(), h].flip(0).cumprod(0).flip(0)  # of j and of what is between j and i
                    weights = weights * (1 - gates[b, may.long(), h]) * torch.cat([after[1:], after.new_ones(1)])
                total, summed = weights.sum(), weights @ v[b, may.long(), h]
                if config.form == "released":
                    total = torch.clamp(total, min=1.0)
                elif abs(total.item()) < 1e-3:
                    total = torch.full_like(total, -1e-3 if total < 0 else 1e-3)
                out.append(summed / total)
    heads = torch.stack(out).view(B, config.heads, T, D).transpose(1, 2)
    return F.linear(heads.flatten(2), block.output.weight, block.output.bias)


def _compare(agrees, block, causal, lengths):
    with torch.no_grad():
        block.scale.uniform_(0.5, 1.5)
    for length in lengths:
        x = torch.randn(1 if length > 9 else 2, length, 8, dtype=torch.float64)
        agrees(block, lambda x: _plain(block, x, causal), x)
    padding = torch.rand(2, 20) < 0.7
    padding[0, :3] = False
    x = torch.randn(2, 20, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x, causal, padding), x, Context(padding=padding))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"kernel": "arc_cosine", "features": 40}, {"temperature": 0.5}, {"form": "released"}], ids=str
)
def test_equals_its_definition(agrees, options, causal):
    options = {"features": 30, "bias": True, **options}
    config = RandomFeatureAttentionConfig(dim=8, causal=causal, heads=2, **options)
    _compare(agrees, RandomFeatureAttention(config).double(), causal, (1, 9, 66))


@pytest.mark.parametrize(("form", "features"), [("paper", 8), ("released", 8), ("released", 100)])
def test_over_a_memory_equals_its_definition(agrees, form, features):
    """Peng et al. 2021, section 3.1; the released code divides by the absolute value of the normaliser, at least 1.

    With 8 features every normaliser is below 1, with 100 some are above 1.
    """
    options = {"heads": 2, "features": features, "bias": True, "form": form}
    config = RandomFeatureAttentionConfig(dim=8, causal=True, memory=True, over="memory", **options)
    block = RandomFeatureAttention(config).double()
    with torch.no_grad():
        block.scale.uniform_(0.5, 1.5)
    W, b = block.query_key_value.weight, block.query_key_value.bias
    x, memory = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 7, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 5 + [False] * 2, [False] + [True] * 6])

    def plain(x):
        rows = []
        for n in range(2):
            used = memory[n, real[n]]
            heads = []
            for h in range(2):
                at = slice(4 * h, 4 * h + 4)
                q, k, v = (
                    F.linear(y, W[i : i + 8], b[i : i + 8])[:, at] for y, i in ((x[n], 0), (used, 8), (used, 16))
                )
                weights = _phi(block, q, h) @ _phi(block, k, h).T
                total = weights.sum(1, keepdim=True)
                if form == "released":
                    assert (total.abs() > 1).any() == (features == 100)
                    total = total.abs().clamp(min=1)
                assert total.abs().min() > 1e-3
                heads.append(weights @ v / total)
            rows.append(torch.cat(heads, dim=1))
        return F.linear(torch.stack(rows), block.output.weight, block.output.bias)

    agrees(block, plain, x, Context(memory=memory, memory_padding=real))


@pytest.mark.parametrize("kernel", ["gaussian", "arc_cosine"])
def test_gated_equals_the_products_of_its_gates(agrees, kernel):
    config = GatedRandomFeatureAttentionConfig(dim=8, heads=2, features=40, kernel=kernel, bias=True)
    block = GatedRandomFeatureAttention(config).double()
    _compare(agrees, block, True, (1, 9, 66))


def _estimates(kernel, q, k, seeds):
    """phi(q) . phi(k) of many seeds, [seeds]; q and k: [D]."""
    found = []
    for seed in range(seeds):
        config = RandomFeatureAttentionConfig(dim=4, heads=1, features=32, kernel=kernel, seed=seed)
        block = RandomFeatureAttention(config)
        with torch.no_grad():
            phi_q, phi_k = (block._features(x[None, None, None], block.projections[0])[0, 0, 0] for x in (q, k))
        found.append(phi_q @ phi_k)
    return torch.stack(found)


@pytest.mark.parametrize("kernel", ["gaussian", "arc_cosine"])
def test_features_are_an_unbiased_estimate_of_the_kernel(kernel):
    torch.default_generator.manual_seed(0)
    q, k = torch.randn(2, 4)
    cosine = F.cosine_similarity(q, k, dim=0).item()
    angle = math.acos(cosine)
    exact = {
        "gaussian": math.exp(cosine - 1),  # exp(-|q - k|^2 / 2) of vectors of length one
        "arc_cosine": (math.sin(angle) + (math.pi - angle) * cosine) / (2 * math.pi),
    }
    estimates = _estimates(kernel, q, k, 1500)
    assert abs(estimates.mean().item() - exact[kernel]) < 4 * estimates.std().item() / math.sqrt(1500)
    assert estimates.std().item() / math.sqrt(1500) < 0.01


@pytest.mark.parametrize("form", ["paper", "released"])
def test_a_row_of_zeros_has_no_giant_gradient(form):
    block = RandomFeatureAttention(RandomFeatureAttentionConfig(dim=4, heads=1, features=64, form=form)).double()
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    x[0, 2] = 0
    x.requires_grad_()
    block(x, Context()).square().sum().backward()
    lengths = x.grad[0].norm(dim=1)
    assert lengths[2] < 1e4 * lengths[[0, 1, 3, 4, 5]].mean()


def test_a_normaliser_near_zero_is_kept_away_from_it():
    block = RandomFeatureAttention(RandomFeatureAttentionConfig(dim=4, heads=1, features=8, temperature=0.1)).double()
    x = torch.randn(64, 5, 4, dtype=torch.float64)
    largest = block(x, Context()).abs().max()
    values = F.linear(x, block.query_key_value.weight)[..., 8:].abs().sum(2).max()
    assert largest <= 5 * values / 1e-3 * block.output.weight.abs().sum()
    assert largest.isfinite()


def test_training_picks_from_the_pool_and_evaluation_reads_the_first():
    block = RandomFeatureAttention(RandomFeatureAttentionConfig(dim=8, heads=2, pool=4, seed=3))
    assert block.eval()._projection().equal(block.projections[0])
    block.train()
    torch.default_generator.manual_seed(0)
    picked = [block._projection() for _ in range(40)]
    for h in range(2):
        used = {n for n in range(4) for W in picked if W[h].equal(block.projections[n, h])}
        assert used == {0, 1, 2, 3}
    torch.default_generator.manual_seed(0)
    assert all(block._projection().equal(W) for W in picked)


@pytest.mark.parametrize("over", ["self", "memory"])
def test_all_pieces_of_a_sequence_have_the_features_of_one_matrix_in_training_too(over):
    config = RandomFeatureAttentionConfig(dim=8, causal=True, memory=True, heads=2, pool=16, over=over)
    block = RandomFeatureAttention(config).double().train()
    x, memory, streams, outs = torch.randn(1, 6, 8).double(), torch.randn(1, 4, 8).double(), Streams(), []
    for piece in x.split([2, 1, 3], dim=1):
        streams.rewind()
        outs.append(block(piece, Context(streams=streams, memory=memory)))
    torch.testing.assert_close(torch.cat(outs, dim=1), block.eval()(x, Context(memory=memory)))


def test_layers_of_one_seed_draw_matrices_of_their_own():
    body = "[{random_feature_attention: {heads: 2}}, {gated_random_feature_attention: {heads: 2}}]"
    model = build(f"kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {{repeat: {{times: 2, of: {body}}}}}\n")
    pools = [module.projections for module in model.modules() if hasattr(module, "projections")]
    assert len(pools) == 4
    assert not any(pools[i].equal(pools[j]) for i in range(4) for j in range(i))


def test_what_replays_the_random_state_picks_the_same_matrices():
    block = RandomFeatureAttention(RandomFeatureAttentionConfig(dim=8, heads=2, pool=16)).train()
    x = torch.randn(1, 5, 8, requires_grad=True)
    torch.default_generator.manual_seed(1)
    expected = torch.autograd.grad(block(x, Context()).square().sum(), x)
    torch.default_generator.manual_seed(1)
    out = checkpoint(lambda x: block(x, Context()), x, use_reentrant=False)
    torch.randn(3)  # the state moves on before the backward pass
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), x), expected)


def test_a_closed_gate_leaves_every_position_to_itself():
    block = GatedRandomFeatureAttention(GatedRandomFeatureAttentionConfig(dim=8, heads=1)).double()
    with torch.no_grad():
        block.gate.weight.zero_()
        block.gate.bias.fill_(-40.0)  # nothing is kept: every position reads itself alone
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    values = F.linear(x, block.query_key_value.weight)[..., 16:]
    alone = F.linear(values, block.output.weight)
    torch.testing.assert_close(block(x, Context()), alone, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("gated", [False, True])
def test_memory_grows_with_the_length_and_not_with_its_square(gated):
    if gated:
        block = GatedRandomFeatureAttention(GatedRandomFeatureAttentionConfig(dim=32, heads=1))
    else:
        block = RandomFeatureAttention(RandomFeatureAttentionConfig(dim=32, causal=True, heads=1))
    kept = []
    for length in (512, 2048):
        x = torch.randn(1, length, 32, requires_grad=True)
        kept.append(kept_bytes(lambda: block(x, Context()), block.parameters()))  # noqa: B023
    assert kept[1] < 4.1 * kept[0]


def test_says_what_does_not_fit():
    for form, least in (("paper", 8), ("released", 1)):
        with pytest.raises(ValueError, match=f"features must be at least {least}, but got {least - 1}"):
            RandomFeatureAttentionConfig(dim=8, features=least - 1, form=form)
