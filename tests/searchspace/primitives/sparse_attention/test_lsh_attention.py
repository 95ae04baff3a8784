"""LSH attention against its definition, one query after the other, and where it is full attention."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from kernels.sparse_attention.lsh_attention import gaussians
from searchspace.contract import Choices, Context, Given, Streams
from searchspace.primitives.attention.heads import merge, split
from searchspace.primitives.position.alibi import Alibi, AlibiConfig
from searchspace.primitives.position.rotary import Rotary, RotaryConfig
from searchspace.primitives.sparse_attention.lsh_attention import LshAttention, LshAttentionConfig
from searchspace.registry import configure
from searchspace.sharing import one_model
from searchspace.tree import Block

DIM, HEADS = 8, 2
PADDED = torch.ones(2, 23, dtype=torch.bool)
PADDED[0, 17:] = PADDED[1, 3:6] = PADDED[1, 9:] = False


def block(**fields) -> LshAttention:
    torch.default_generator.manual_seed(1)
    config = LshAttentionConfig(dim=DIM, heads=HEADS, **{"chunk": 5, "rounds": 3, "buckets": 4, **fields})
    return LshAttention(config).double()


def hashed(config: LshAttentionConfig, x: torch.Tensor, length: int, head: int = 0, layer: int = 0) -> list[int]:
    """x: [R, D], one vector a round -> its bucket in every round, from the definition."""
    buckets, factor, D = [0] * config.rounds, 1, x.shape[1]
    for index, columns in enumerate(config.columns(-(-length // config.chunk))):
        for r in range(config.rounds):
            rows = torch.arange(D) * config.rounds + r + index * D * config.rounds
            rows = rows + (head * 2 * D * config.rounds if config.head_rotations else 0)
            product = x[r] @ gaussians(rows, columns, config.seed * 1_000_003 + layer).double()
            buckets[r] += factor * int(torch.cat([product, -product]).argmax())
        factor *= 2 * columns
    return buckets


def shown(config: LshAttentionConfig, q: torch.Tensor, real: list[int], head: int) -> list[dict[int, list[int]]]:
    """For every round: which keys, with repetition, each real query of a head q [T, D] is shown."""
    fills = config.padding == "fills"
    length = len(q) if fills else len(real)
    if length <= config.chunk:
        return [{i: [j for j in real if not (config.causal and j > i)] for i in real}]
    bucket = {i: hashed(config, q[i].expand(config.rounds, -1), length, head) for i in real}
    ring: list[tuple[int, list[int]]] = []
    for r in range(config.rounds):
        order = sorted(real, key=lambda i: (bucket[i][r], i))
        ring += [(r, order[start : start + config.chunk]) for start in range(0, length, config.chunk)]
    rounds: list[dict[int, list[int]]] = [{} for _ in range(config.rounds)]
    for place, (r, chunk) in enumerate(ring):
        back_only = config.causal or config.look == "back"
        near = {place, (place - 1) % len(ring)} | (set() if back_only else {(place + 1) % len(ring)})
        for i in chunk:
            rounds[r][i] = [
                j
                for other, keys in (ring[n] for n in sorted(near))
                for j in keys
                if not (config.causal and j > i)
                and not (config.same_bucket and (other, bucket[j][other]) != (r, bucket[i][r]))
            ]
    return rounds


def plain(module: LshAttention, x: torch.Tensor, context: Context) -> torch.Tensor:
    config, (B, T, _) = module.config, x.shape
    q, v = (split(half, HEADS) for half in module.query_value(x).chunk(2, dim=2))
    positions, bias = torch.arange(T), torch.zeros(HEADS, T, T, dtype=torch.float64)
    if context.position is not None:
        q, own = context.position.rotate(q, positions), context.position.bias(HEADS, positions, positions)
        bias = bias if own is None else own.double()
    out = torch.zeros_like(v)
    for b in range(B):
        real = list(range(T)) if context.padding is None else context.padding[b].nonzero()[:, 0].tolist()
        for h in range(HEADS):
            rounds = shown(config, q[b, h].detach(), real, h)
            counts = {i: Counter(j for keys in rounds for j in keys[i]) for i in real}
            for i in real:
                outs, sums = [], []
                for keys in rounds:
                    j = torch.tensor(keys[i])
                    length = (q[b, h, j].pow(2).mean(1, keepdim=True) + config.key_eps) * DIM / HEADS
                    k = q[b, h, j] / length.sqrt()
                    scores = k @ q[b, h, i] / (math.sqrt(DIM // HEADS) if config.scale else 1) + bias[h, i, j]
                    if config.exact_counts:
                        scores = scores - torch.tensor([counts[i][key] for key in keys[i]]).double().log()
                    scores = torch.where(j == i, -1e5, scores)
                    outs.append(scores.softmax(0) @ v[b, h, j])
                    sums.append(scores.logsumexp(0))
                out[b, h, i] = torch.stack(sums).softmax(0) @ torch.stack(outs)
    return module.output(merge(out))


VARIANTS = [
    {},
    {"rounds": 1, "chunk": 12},
    {"buckets": None},
    {"buckets": 8, "factorised": True},
    {"buckets": None, "factorised": True},
    {"scale": False},
    {"scale": False, "key_eps": 0.1},
    {"same_bucket": True},
    {"exact_counts": True},
    {"exact_counts": True, "same_bucket": True},
    {"exact_counts": True, "rounds": 1, "chunk": 12},
    {"rounds": 2, "chunk": 22, "exact_counts": True},
]
RELEASED = [
    {"look": "back"},
    {"look": "back", "exact_counts": True, "rounds": 2, "chunk": 12},
    {"head_rotations": True, "buckets": 8, "factorised": True},
    {"padding": "fills"},
    {"padding": "fills", "buckets": None, "exact_counts": True, "same_bucket": True},
    {"padding": "fills", "look": "back", "head_rotations": True, "scale": False, "key_eps": 1e-6},
]


def crossed():
    """Every variant in both directions, whole and padded; the defaults in all four ways, the others in two of them."""
    for number, fields in enumerate(VARIANTS):
        for causal in (True, False):
            for padded in (False, True):
                if not fields or padded == (causal == bool(number % 2)):
                    yield fields, PADDED if padded else None, causal


@pytest.mark.parametrize(
    ("fields", "padding", "causal"), list(crossed()), ids=lambda value: str(value).partition("[")[0]
)
def test_equals_its_definition(agrees, fields, padding, causal) -> None:
    module, context = block(causal=causal, **fields), Context(padding=padding)
    x = torch.randn(1 if padding is None else 2, 23, DIM, dtype=torch.float64)
    agrees(module, lambda x: plain(module, x, context), x, context)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both_ways"])
@pytest.mark.parametrize("fields", RELEASED, ids=str)
def test_equals_what_trax_and_transformers_read(agrees, fields, causal) -> None:
    """Chunks that look back only, rotations per head, and padding in a last bucket that fills chunks."""
    module, context = block(causal=causal, **fields), Context(padding=PADDED)
    x = torch.randn(2, 23, DIM, dtype=torch.float64)
    agrees(module, lambda x: plain(module, x, context), x, context)
    if fields.get("padding") != "fills":
        torch.testing.assert_close(module(x, Context()), plain(module, x, Context()), atol=1e-9, rtol=1e-9)


def test_each_head_may_hash_by_matrices_of_its_own() -> None:
    x = torch.randn(1, 1, 40, DIM // HEADS, dtype=torch.float64).expand(-1, HEADS, -1, -1)
    shared, own = (block(head_rotations=each)._buckets(x, None) for each in (False, True))
    assert shared[:, 0].equal(shared[:, 1])
    assert own[:, 0].equal(shared[:, 0])
    assert not own[:, 0].equal(own[:, 1])


@pytest.mark.parametrize("position", [Rotary(RotaryConfig(dim=DIM)), Alibi(AlibiConfig(dim=DIM))])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both_ways"])
def test_positions_turn_the_queries_before_they_are_hashed_and_add_to_the_scores(agrees, position, causal) -> None:
    module, context = block(causal=causal), Context(position=position)
    x = torch.randn(1, 23, DIM, dtype=torch.float64)
    agrees(module, lambda x: plain(module, x, context), x, context)


def full(module: LshAttention, x: torch.Tensor) -> torch.Tensor:
    """Shared-query attention over everything, by torch."""
    q, v = (split(half, HEADS) for half in module.query_value(x).chunk(2, dim=2))
    T = x.shape[1]
    mask = torch.zeros(T, T, dtype=torch.float64).fill_diagonal_(-1e5)
    if module.config.causal:
        mask = mask.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -1e9)
    return module.output(merge(F.scaled_dot_product_attention(q, q / q.norm(dim=3, keepdim=True), v, attn_mask=mask)))


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both_ways"])
def test_a_sequence_no_longer_than_a_chunk_is_read_as_a_whole(agrees, causal) -> None:
    for length in (1, 9, 16):
        module = block(causal=causal, chunk=16, same_bucket=True, exact_counts=True)
        agrees(module, lambda x: full(module, x), torch.randn(2, length, DIM, dtype=torch.float64))  # noqa: B023


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both_ways"])
def test_with_so_many_rounds_that_all_is_seen_it_is_full_attention(agrees, causal) -> None:
    module = block(causal=causal, chunk=8, rounds=40, exact_counts=True)
    agrees(module, lambda x: full(module, x), torch.randn(2, 24, DIM, dtype=torch.float64))


def test_more_rounds_are_nearer_to_full_attention() -> None:
    torch.default_generator.manual_seed(0)
    x, errors = torch.randn(2, 96, DIM, dtype=torch.float64), []
    for rounds in (1, 4, 16):
        module = block(chunk=8, rounds=rounds, exact_counts=True)
        errors.append((module(x, Context()) - full(module, x)).abs().mean().item())
    assert errors[0] > errors[1] > errors[2]


def test_the_number_of_buckets_of_a_sequence_is_that_of_what_is_real_in_it() -> None:
    torch.default_generator.manual_seed(0)
    x = torch.randn(2, 60, DIM, dtype=torch.float64)
    padding = torch.ones(2, 60, dtype=torch.bool)
    padding[0, 21:] = False
    for factorised in (False, True):
        module = block(buckets=None, factorised=factorised)
        padded = module(x, Context(padding=padding))
        torch.testing.assert_close(padded[:1, :21], module(x[:1, :21], Context()), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("fields", [{}, {"key_eps": 1e-6}], ids=str)
def test_a_row_of_zeros_has_no_giant_gradient(fields) -> None:
    x = torch.randn(1, 5, DIM, dtype=torch.float64)
    x[0, 2] = 0
    x.requires_grad_()
    block(**fields)(x, Context()).square().sum().backward()
    lengths = x.grad[0].norm(dim=1)
    assert lengths[2] < 1e4 * lengths[[0, 1, 3, 4]].mean()


def test_the_first_position_has_nothing_but_itself() -> None:
    module, x = block(causal=True), torch.randn(2, 23, DIM, dtype=torch.float64)
    expected = module.output(module.query_value(x[:, 0]).chunk(2, dim=1)[1])
    torch.testing.assert_close(module(x, Context())[:, 0], expected)


def test_padded_positions_read_zeros() -> None:
    module, x = block(bias=False), torch.randn(2, 23, DIM, dtype=torch.float64)
    assert module(x, Context(padding=PADDED))[~PADDED].abs().max() == 0


def test_without_a_number_there_are_two_buckets_for_every_chunk() -> None:
    assert LshAttentionConfig(dim=DIM, buckets=None).columns(7) == (7,)
    first, second = LshAttentionConfig(dim=DIM, buckets=None, factorised=True).columns(33)
    assert 4 * first * second >= 66


def test_layers_of_a_model_hash_by_matrices_of_their_own() -> None:
    x = torch.randn(1, HEADS, 40, DIM // HEADS, dtype=torch.float64)
    with one_model():
        first, second = block(), block()
    assert not first._buckets(x, None).equal(second._buckets(x, None))
    assert first._buckets(x, None).equal(block()._buckets(x, None))
    assert not first._buckets(x, None).equal(block(seed=1)._buckets(x, None))


def test_a_second_pass_may_repeat_the_choices_of_the_first() -> None:
    module, choices = block(), Choices()
    x, other = torch.randn(2, 2, 23, DIM, dtype=torch.float64)
    first = module(x, Context(choices=choices))
    choices.rewind()
    assert not module(other, Context(choices=choices)).equal(module(other, Context()))
    choices.rewind()
    assert module(x, Context(choices=choices)).equal(first)


def test_dropout_takes_keys_away_and_keeps_the_mean() -> None:
    module = block(dropout=0.5, causal=True, chunk=4)
    x = torch.randn(1, 9, DIM, dtype=torch.float64).expand(1000, -1, -1)
    mean, whole = module(x, Context()).mean(0), module.eval()(x[:1], Context())[0]
    torch.testing.assert_close(mean, whole, atol=0.1, rtol=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 3}, "multiple of heads"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"buckets": 5}, "buckets must be even"),
        ({"buckets": 0}, "buckets must be even"),
        ({"buckets": 6, "factorised": True}, "multiple of 4"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"key_eps": -0.1}, "key_eps must be at least 0"),
        ({"dropout": 1.0}, "dropout must lie"),
    ],
)
def test_refuses_values_that_make_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(LshAttentionConfig(dim=DIM), **fields)


def test_may_stand_in_a_decoder_but_not_read_in_pieces() -> None:
    module = configure(Block("lsh_attention", {}), Given(dim=DIM, causal=True)).build()
    with pytest.raises(ValueError, match="cannot read a sequence in pieces"):
        module(torch.randn(1, 2, DIM), Context(streams=Streams()))
