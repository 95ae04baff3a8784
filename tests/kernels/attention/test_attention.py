"""Attention equals its definition: outputs and gradients, odd sizes, masks and biases, all implementations."""

import itertools
import math

import pytest
import torch
from torch import nn

from kernels.attention.attention import OPERATION, attention, attention_reference, reach
from kernels.attention.blocked import attention_blocked
from kernels.attention.problems import EVERYWHERE
from kernels.attention.weight_dropout import dropped_of, kept
from kernels.dispatch import tuned
from kernels.dispatch.registry import Choice
from kernels.rowwise.rows import triton_is_here
from searchspace.testing import count_flops, peak_bytes
from tests.kernels.near import agree

CPU = ["sdpa", "sdpa_flash", "sdpa_math", "blocked"]
# Tile sizes for which each loop runs several times at these lengths.
SMALL = {**EVERYWHERE, "block_q": 16, "block_k": 16, "backward_own": 16, "backward_step": 16}
needs_triton = pytest.mark.skipif(not triton_is_here(), reason="Triton is not installed")


def _heads(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _call(name, q, k, v, settings=None, **options):
    """Call an implementation, even if this device would not choose it."""
    each = OPERATION.implementations[name]
    whole = {
        "causal": False, "keys": None, "bias": None, "dropout": 0.0, "scale": None, "window": None, "slopes": None,
    }  # fmt: skip
    return each.call(q, k, v, **{**whole, **options}, **{**each.default, **(settings or {})})


def _options(case, heads, queries, length, dtype=torch.float64):
    """The keyword arguments of a case."""
    table = (queries + length - 1,) if "distance" in case else (queries, length)
    return {
        "causal": "causal" in case,
        "bias": torch.randn(heads, *table, dtype=dtype, requires_grad=True) if "bias" in case else None,
        "keys": torch.rand(2, length) < 0.5 if "keys" in case else None,
        "window": (3, 4) if "window" in case else None,
        "slopes": torch.rand(heads, dtype=dtype) if "slopes" in case else None,
        "scale": 0.7 if "scale" in case else None,
    }


CASES = ["", "causal", "window", "causal window", "keys bias", "causal slopes keys", "window bias scale causal"]
CASES += ["bias by distance", "causal bias by distance slopes keys window"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case or "plain")
@pytest.mark.parametrize("name", CPU)
@pytest.mark.parametrize(("heads", "groups", "queries", "length"), [(4, 2, 20, 37), (2, 2, 1, 9), (2, 2, 9, 5)])
def test_every_way_equals_the_definition(heads, groups, queries, length, name, case):
    torch.default_generator.manual_seed(0)
    q, k, v = _heads(3, heads, queries, 6), _heads(3, groups, length, 6), _heads(3, groups, length, 6)
    options = _options(case if queries <= length else case.replace("causal", ""), heads, queries, length)
    if options["keys"] is not None:
        options["keys"] = torch.cat([options["keys"], torch.zeros(1, length, dtype=torch.bool)])
    if name == "sdpa_flash" and options["bias"] is not None:
        options["bias"] = options["bias"].detach()
    inputs = [q, k, v]
    if options["bias"] is not None and options["bias"].requires_grad:
        inputs.append(options["bias"])
    settings = {"rows": 16, "sequences": 1 if "causal" in case else 2} if name == "blocked" else {}
    agree(_call(name, q, k, v, settings, **options), attention_reference(q, k, v, **options), inputs)


@needs_triton
@pytest.mark.parametrize(
    ("case", "heads", "groups", "queries", "length"),
    [
        ("", 2, 1, 1, 9),
        ("", 1, 1, 20, 18),
        ("causal", 2, 1, 17, 35),
        ("window", 1, 1, 35, 35),
        ("causal window", 1, 1, 20, 40),
        ("keys bias", 1, 1, 17, 35),
        ("causal slopes keys", 2, 2, 5, 18),
        ("window bias scale causal", 2, 1, 17, 17),
        ("bias by distance", 1, 1, 40, 18),
        ("causal bias by distance slopes keys window", 2, 1, 17, 35),
    ],
)
def test_tiles_equal_the_definition(case, heads, groups, queries, length, monkeypatch):
    import kernels.attention.attention_triton as tiled

    monkeypatch.setattr(tiled, "SLAB", 1)  # sums the gradient of a bias by distance 16 queries at a time
    torch.default_generator.manual_seed(0)
    B = 2 if "keys" in case else 1
    q, k, v = (
        _heads(B, count, positions, 6, dtype=torch.float32)
        for count, positions in ((heads, queries), (groups, length), (groups, length))
    )
    options = _options(case, heads, queries, length, torch.float32)
    if options["keys"] is not None:
        options["keys"][1, :17] = False  # a whole tile of padding
    inputs = [q, k, v] if options["bias"] is None else [q, k, v, options["bias"]]
    found = _call("triton", q, k, v, SMALL, **options)
    wide = {name: x.double() if name in ("bias", "slopes") and x is not None else x for name, x in options.items()}
    # About 35 products of unit size, each rounded to 24 bits.
    agree(found, attention_reference(q.double(), k.double(), v.double(), **wide), inputs, 100 * 2**-24)


@pytest.mark.parametrize("case", ["", "causal keys bias", "window bias by distance"], ids=lambda case: case or "plain")
@pytest.mark.parametrize("name", ["blocked", pytest.param("triton", marks=needs_triton)])
def test_a_seed_drops_the_same_weights_everywhere(name, case):
    torch.default_generator.manual_seed(0)
    dtype, tolerance = (torch.float32, 400 * 2**-24) if name == "triton" else (torch.float64, 1e-10)
    q, k, v = (_heads(2, count, length, 6, dtype=dtype) for count, length in ((2, 17), (1, 18), (1, 18)))
    options, seed = {**_options(case, 2, 17, 18, dtype), "dropout": 0.3}, torch.tensor([2**61 + 12345])
    inputs = [q, k, v] if options["bias"] is None else [q, k, v, options["bias"]]
    expected = attention_reference(q, k, v, **options, seed=seed)
    assert (expected - attention_reference(q, k, v, **options)).abs().max() > 0.1
    if name == "triton":
        from kernels.attention.attention_triton import attention_triton as call

        settings = {"precision": "ieee", "forward": [16, 16, 4, 1], "backward": [16, 32, 4, 1]}
    else:
        call, settings = attention_blocked, {"rows": 16, "sequences": 1}
    window = options.pop("window")
    left, right = reach(options.pop("causal"), window)
    found = call(q, k, v, left=left, right=right, **options, **settings, seed=seed)
    agree(found[0] if name == "triton" else found, expected, inputs, tolerance)


def test_the_share_that_is_dropped_is_the_one_asked_for():
    rows, seed = torch.arange(500), torch.tensor([7])
    for share in (0.0, 0.1, 0.5, 1.0):
        factors = kept(seed, rows, range(400), dropped_of(share), torch.float64)
        n = factors.numel()
        assert abs((factors == 0).double().mean() - share) <= 4 * math.sqrt(share * (1 - share) / n)
        torch.testing.assert_close(factors.max().item(), 1 / (1 - share) if share < 1 else 0.0, atol=1e-6, rtol=0)
        # Rows, keys and seeds are independent of each other.
        other = kept(seed + 1, rows, range(400), dropped_of(share), torch.float64)
        for one, two in ((factors[1:], factors[:-1]), (factors[:, 1:], factors[:, :-1]), (factors, other)):
            both = ((one == 0) & (two == 0)).double().mean()
            assert abs(both - share**2) <= 4 * math.sqrt(share**2 * (1 - share**2) / one.numel())


def test_dropout_follows_the_generator_of_torch():
    q = torch.randn(1, 2, 9, 4)
    outs = []
    for seed in (0, 0, 1):
        torch.default_generator.manual_seed(seed)
        outs.append(attention(q, q, q, dropout=0.5, config=Choice.of("blocked")))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


@needs_triton
def test_a_row_without_keys_has_a_sum_of_nothing():
    from kernels.attention.attention_triton import attention_triton

    torch.default_generator.manual_seed(0)
    q, k, v = (_heads(2, 1, length, 4, dtype=torch.float32) for length in (5, 9, 9))
    keys = torch.ones(2, 9, dtype=torch.bool)
    keys[1] = False
    plain = {"left": None, "right": None, "bias": None, "slopes": None, "scale": None, "precision": "ieee"}
    out, lse = attention_triton(q, k, v, keys=keys, **plain, forward=[16, 16, 4, 1], backward=[16, 16, 4, 1])
    torch.testing.assert_close(lse[0], (q[0] @ k[0].transpose(1, 2) / 2).logsumexp(2))
    assert (lse[1] == -math.inf).all()
    assert not out[1].any()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()
        assert not gradient[1].any()


@needs_triton
def test_more_queries_than_keys_leave_the_first_ones_nothing_in_reach():
    torch.default_generator.manual_seed(0)
    q, k, v = (_heads(1, 1, length, 4, dtype=torch.float32) for length in (40, 18, 18))
    for name, settings in (("triton", SMALL), ("blocked", {"rows": 16})):
        found = _call(name, q, k, v, settings, window=(2, 2))
        assert not found[:, :, :19].any()
        agree(found, attention_reference(q, k, v, window=(2, 2)), (q, k, v), 100 * 2**-24)


class _Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x):
        return attention(x, x, x, causal=True, config=self.config)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_model_may_leave_its_length_open(strict):
    model, T = _Model(None), torch.export.Dim("T", min=2, max=64)
    exported = torch.export.export(model, (torch.randn(1, 2, 7, 4),), dynamic_shapes={"x": {2: T}}, strict=strict)
    longer = torch.randn(1, 2, 19, 4)
    torch.testing.assert_close(exported.module()(longer), model(longer))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(longer), model(longer))


@pytest.mark.parametrize("name", ["blocked", pytest.param("triton", marks=needs_triton)])
def test_counts_and_casts_as_torch_does(name):
    q, k, v = (_heads(2, 4, 6, 4, dtype=torch.float32) for _ in range(3))
    assert count_flops(lambda: _call(name, q, k, v)) == count_flops(lambda: _call("sdpa", q, k, v))
    with torch.autocast("cpu", torch.bfloat16):
        out = _call(name, q, k, v)
        assert out.dtype == _call("sdpa", q, k, v).dtype == torch.bfloat16
        assert torch.autograd.grad(out.sum(), q)[0].dtype == torch.float32


def test_blocks_hold_no_matrix_of_all_pairs():
    def peak(length):
        q, k, v = (torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(3))
        options = {"left": 31, "right": 0, "keys": None, "bias": None, "slopes": None, "scale": None}
        return peak_bytes(lambda: attention_blocked(q, k, v, **options, rows=32, sequences=1).sum().backward())

    assert peak(2048) <= 4.5 * peak(512)


def test_serves_a_window_without_a_matrix_and_the_rest_by_torch():
    q = torch.zeros(1, 1, 4, 8)
    with tuned.asked() as problems:
        attention(q, q, q, causal=True)
        attention(q, q, q, window=(1, 1))
    plain, windowed = problems
    assert OPERATION.default_choice(plain).implementation == "sdpa"
    assert OPERATION.default_choice(windowed).implementation == "blocked"
    assert plain["reach"] == 4
    assert windowed["reach"] == 3


def test_says_who_refuses_what():
    sizes = (2, 4, 2, 8, 8, 300, 8)
    flags = (True, True, False, "learned", False, False, True)
    on = {device: OPERATION.problem(device, "float32", sizes, flags) for device in ("cpu", "cuda")}
    reasons = {
        (name, device): each.refuses(problem)
        for name, each in OPERATION.implementations.items()
        for device, problem in on.items()
    }
    assert reasons["sdpa_flash", "cpu"] == "it has no gradient for a bias"
    assert reasons["sdpa_flash", "cuda"] == reasons["sdpa_cudnn", "cuda"] == "it computes in half precision"
    assert reasons["sdpa_efficient", "cuda"] == "it needs as many key heads as query heads"
    assert reasons["triton", "cuda"] == "a head is at most 256 wide"
    for name, device in itertools.product(("sdpa", "sdpa_math", "blocked"), on):
        assert reasons[name, device] is None


def test_a_query_without_keys_reads_zeros_and_passes_no_gradient():
    q, k, v = _heads(2, 2, 3, 4), _heads(2, 2, 5, 4), _heads(2, 2, 5, 4)
    keys = torch.zeros(2, 5, dtype=torch.bool)
    keys[0] = True
    out = attention(q, k, v, keys=keys)
    assert not out[1].any()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()
        assert gradient[0].any()
        assert not gradient[1].any()


def test_the_last_query_sees_the_last_key():
    q, k, v = _heads(1, 1, 6, 4), _heads(1, 1, 6, 4), _heads(1, 1, 6, 4)
    whole = attention(q, k, v, causal=True)
    torch.testing.assert_close(attention(q[:, :, 4:], k, v, causal=True), whole[:, :, 4:])
    with pytest.raises(ValueError, match="a key for every query, but got 6 queries and 5 keys"):
        attention(q, k[:, :, 1:], v[:, :, 1:], causal=True)


def test_refuses_what_makes_no_sense():
    q = _heads(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"here 5 numbers per head, but got \[2, 3\]"):
        attention(q, q, q, bias=torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"two numbers of keys, none below zero, but got \(-1, 2\)"):
        attention(q, q, q, window=(-1, 2))
    with pytest.raises(ValueError, match="Slopes are constants"):
        attention(q, q, q, slopes=torch.ones(2, requires_grad=True))
    with pytest.raises(ValueError, match="a Triton kernel needs a GPU"):
        attention(q.float(), q.float(), q.float(), config=Choice.of("triton"))
