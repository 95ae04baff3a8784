"""Block-sparse attention equals a mask over all pairs, for any sizes, lists and masks, with all implementations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.attention import attention_reference
from kernels.attention.problems import EVERYWHERE
from kernels.dispatch import tuned
from kernels.rowwise.rows import triton_is_here
from kernels.sparse_attention.block_sparse_attention import (
    OPERATION,
    block_sparse_attention,
    block_sparse_attention_reference,
    by_distance,
    distances,
)
from kernels.sparse_attention.problems import FLAGS
from searchspace.testing import count_flops, peak_bytes

needs_triton = pytest.mark.skipif(not triton_is_here(), reason="Triton is not installed")
PYTORCH = ["gathered", "blocked", "dense"]
WAYS = [*PYTORCH, pytest.param("triton", marks=needs_triton)]
# Tiles for which each loop runs several times at these lengths.
SMALL = {**EVERYWHERE, "block_q": 16, "block_k": 16, "backward_own": 16, "backward_step": 16}
ROUNDED = 100 * 2**-24  # about 35 products of unit size, each rounded to 24 bits


def _call(name, *args, settings=None, **options):
    """Call an implementation, even if this device would not choose it."""
    each = OPERATION.implementations[name]
    whole = {"allowed": None, "keys": None, "bias": None, "dropout": 0.0}
    default = SMALL if name == "triton" else each.default
    return each.call(*args, **{**whole, **options}, **{**default, **(settings or {})})


def _lists(batch, heads, queries, keys, many):
    """Blocks of keys for each block of queries, each at most once."""
    ranked = torch.rand(batch, heads, queries, keys).argsort(3)
    return ranked[..., : min(many, keys)]


def _results(out, inputs):
    """An output and the gradients of a weighted sum of it; the weights are the same for all implementations."""
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    gradients = torch.autograd.grad((out.double() * weights).sum(), inputs)
    return [out.detach().double(), *(gradient.double() for gradient in gradients)]


def _agree(found, expected, inputs, tolerance=1e-10):
    for one, other in zip(_results(found, inputs), _results(expected, inputs), strict=True):
        torch.testing.assert_close(one, other, atol=4 * tolerance, rtol=4 * tolerance)


def _heads(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _case(Tq, Tk, rows, columns, many, *, own, apart, masked, padded, biased, groups, seed, dtype=torch.float64):
    """Arguments and options of a call; `seed` also says which axes the masks have."""
    torch.default_generator.manual_seed(seed)
    heads = [_heads(2, count, size, 3, dtype=dtype) for count, size in ((2, Tq), (groups, Tk), (groups, Tk))]
    N, M = -(-Tq // rows), -(-Tk // columns)
    blocks = _lists(2 if apart else 1, 2 if own else 1, N, M, many)
    shapes = ((1, 1, N, rows), (2, 1, 1, rows), (1, 2, N, 1), (1, 1, 1, 1), (2, 2, N, rows))
    places = blocks.shape[3] * columns
    return [*heads, blocks], {
        "rows": rows,
        "columns": columns,
        "allowed": torch.rand(*shapes[seed % 5], places) < 0.6 if masked else None,
        "keys": torch.rand(2, Tk) < 0.6 if padded else None,
        "bias": _heads(*shapes[-seed % 5], places, dtype=dtype) if biased else None,
    }


def _inputs(args, options):
    return args[:3] if options["bias"] is None else [*args[:3], options["bias"]]


@settings(max_examples=20)
@given(
    st.integers(1, 30), st.integers(1, 30), st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.booleans(),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([1, 2]), st.sampled_from([1, 2, 64]),
    st.integers(0, 99),
)  # fmt: skip
def test_every_way_equals_the_definition(
    Tq, Tk, rows, columns, many, own, apart, masked, padded, biased, groups, together, seed
):
    args, options = _case(
        Tq, Tk, rows, columns, many, own=own, apart=apart, masked=masked, padded=padded, biased=biased, groups=groups,
        seed=seed,
    )  # fmt: skip
    inputs = _inputs(args, options)
    expected = _results(block_sparse_attention_reference(*args, **options), inputs)
    for name in PYTORCH:
        tried = {"together": together} if name == "blocked" else {}
        found = _results(_call(name, *args, **options, settings=tried), inputs)
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


CASES = {
    "one of all": ((1, 1, 1, 1, 1), {}),
    "plain": ((11, 17, 6, 5, 3), {}),
    "narrow blocks": ((7, 6, 4, 1, 5), {"groups": 1}),
    "wide blocks": ((20, 19, 19, 18, 1), {"apart": True, "own": True}),
    "own": ((11, 12, 4, 3, 2), {"own": True, "groups": 1, "masked": True}),
    "padded": ((11, 12, 4, 3, 3), {"padded": True, "masked": True, "groups": 1}),
    "biased": ((7, 8, 3, 3, 2), {"biased": True, "padded": True}),
    "everything": (
        (9, 10, 4, 3, 3),
        {"own": True, "apart": True, "masked": True, "padded": True, "biased": True, "groups": 1},
    ),
}


@needs_triton
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_tiles_equal_the_definition(case):
    plain = {"own": False, "apart": False, "masked": False, "padded": False, "biased": False, "groups": 2}
    args, options = _case(*case[0], **{**plain, **case[1]}, seed=2, dtype=torch.float32)
    expected = block_sparse_attention_reference(*(x.double() for x in args[:3]), args[3], **options)
    _agree(_call("triton", *args, **options), expected, _inputs(args, options), ROUNDED)


@needs_triton
@pytest.mark.parametrize("axes", range(4))
def test_a_bias_gathers_the_gradients_of_all_that_share_it(axes):
    """One axis at a time has its full size: sequences, heads, blocks, rows."""
    torch.default_generator.manual_seed(0)
    q, k, v = (_heads(2, 2, 10, 3, dtype=torch.float32) for _ in range(3))
    shape = [size if axis == axes else 1 for axis, size in enumerate((2, 2, 2, 5))]
    blocks, bias = _lists(1, 1, 2, 3, 2), _heads(*shape, 8, dtype=torch.float32)
    options = {"rows": 5, "columns": 4, "bias": bias}
    expected = block_sparse_attention_reference(q.double(), k.double(), v.double(), blocks, **options)
    _agree(_call("triton", q, k, v, blocks, **options), expected, (q, bias), ROUNDED)


def _definition_by_pairs(q, k, v, blocks, rows, columns, allowed):
    """One softmax for each query over the set of its keys, in plain Python."""
    out = torch.zeros_like(q)
    for b, h, i in torch.cartesian_prod(*(torch.arange(size) for size in q.shape[:3])).tolist():
        listed = blocks[0, 0, i // rows].tolist()
        places = range(len(listed) * columns)
        reads = [listed[p // columns] * columns + p % columns for p in places if allowed[0, 0, i // rows, i % rows, p]]
        reads = [j for j in reads if j < k.shape[2]]
        if reads:
            shares = (k[b, h, reads] @ q[b, h, i] / math.sqrt(q.shape[3])).softmax(0)
            out[b, h, i] = shares @ v[b, h, reads]
    return out


def test_the_definition_is_a_softmax_over_a_set_of_keys():
    torch.default_generator.manual_seed(0)
    q, k, v = torch.randn(2, 2, 11, 3), torch.randn(2, 2, 14, 3), torch.randn(2, 2, 14, 3)
    blocks, allowed = _lists(1, 1, 3, 4, 3), torch.rand(1, 1, 3, 5, 12) < 0.5
    found = block_sparse_attention_reference(q, k, v, blocks, rows=5, columns=4, allowed=allowed)
    torch.testing.assert_close(found, _definition_by_pairs(q, k, v, blocks, 5, 4, allowed))


@pytest.mark.parametrize("name", WAYS)
def test_a_list_of_all_blocks_is_full_attention(name):
    q, k, v = (torch.randn(2, 2, 21, 4) for _ in range(3))
    blocks = torch.arange(5).expand(1, 1, 3, 5)
    found = _call(name, q, k, v, blocks, rows=8, columns=5)
    torch.testing.assert_close(found, attention_reference(q, k, v), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", WAYS)
def test_a_query_without_keys_reads_zeros_and_passes_no_gradient(name):
    q, k, v = (torch.randn(2, 1, 8, 4, requires_grad=True) for _ in range(3))
    blocks = torch.tensor([[0], [1]]).view(1, 1, 2, 1)
    keys = torch.tensor([[True] * 8, [True] * 4 + [False] * 4])
    for bias in (None, torch.zeros(1, 1, 1, 1, 4)):
        out = _call(name, q, k, v, blocks, rows=4, columns=4, keys=keys, bias=bias)
        assert not out[1, :, 4:].any()
        for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
            assert gradient.isfinite().all()
            assert not gradient[1, :, 4:].any()
            assert gradient[0].any()


@pytest.mark.parametrize("name", WAYS)
def test_a_block_listed_again_is_read_once_where_it_is_allowed_once(name):
    q, k, v = (torch.randn(1, 1, 4, 4) for _ in range(3))
    blocks, allowed = torch.tensor([0, 0, 1]).view(1, 1, 1, 3), torch.tensor([True] * 2 + [False] * 2 + [True] * 2)
    found = _call(name, q, k, v, blocks, rows=4, columns=2, allowed=allowed.view(1, 1, 1, 1, 6))
    torch.testing.assert_close(found, attention_reference(q, k, v), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["blocked", pytest.param("triton", marks=needs_triton)])
def test_counts_and_casts_as_what_is_gathered(name):
    q, k, v = (_heads(1, 2, 6, 4, dtype=torch.float32) for _ in range(3))
    args, sizes = (q, k, v, _lists(1, 2, 2, 3, 2)), {"rows": 3, "columns": 2}
    _call(name, *args, **sizes)  # Triton's operators exist after their first call
    assert count_flops(lambda: _call(name, *args, **sizes)) == count_flops(lambda: _call("gathered", *args, **sizes))
    with torch.autocast("cpu", torch.bfloat16):
        out = _call(name, *args, **sizes)
        assert out.dtype == _call("gathered", *args, **sizes).dtype == torch.bfloat16
        assert torch.autograd.grad(out.sum(), q)[0].dtype == torch.float32


def test_few_blocks_at_a_time_hold_less_than_all():
    q, k, v = (torch.randn(1, 2, 1024, 8, requires_grad=True) for _ in range(3))
    blocks = _lists(1, 2, 64, 64, 16)

    def peak(name):
        return peak_bytes(
            lambda: _call(name, q, k, v, blocks, rows=16, columns=16, settings=few[name]).sum().backward()
        )

    few = {"gathered": {}, "blocked": {"together": 4}}
    assert peak("blocked") < 0.25 * peak("gathered")


@pytest.mark.parametrize("lists", ["own", "shared"])
@pytest.mark.parametrize("allowed", ["none", "keys", "pairs"])
def test_inputs_are_of_the_problem_that_was_asked_for(lists, allowed):
    """Also if a list is longer than the number of blocks."""
    sizes, flags = (
        (2, 4, 2, 13, 9, 5, 4, 3, 2 if allowed == "none" else 7),
        (lists, allowed, True, "learned", True, True),
    )
    problem = OPERATION.problem("cpu", "float32", sizes, flags)
    args, options = OPERATION.inputs(problem, 1)
    with tuned.asked() as found:
        block_sparse_attention(*args, **options)
    assert list(found) == [problem]
    expected = block_sparse_attention_reference(*args, **options)
    for name in OPERATION.choices(problem):
        torch.testing.assert_close(_call(name, *args, **options), expected, atol=1e-5, rtol=1e-5)


def test_says_who_refuses_what():
    def problem(device="cuda", dtype="float32", length=64, width=16, **flags):
        known = {
            "lists": "own",
            "allowed": "none",
            "padded": False,
            "bias": "none",
            "dropout": False,
            "gradients": True,
        }
        sizes = (1, 2, 2, length, length, width, 16, 16, 4)
        return OPERATION.problem(device, dtype, sizes, tuple({**known, **flags}[name] for name in FLAGS))

    def reason(name, **options):
        return OPERATION.implementations[name].refuses(problem(**options))

    assert reason("triton", width=300) == "a head is at most 256 wide"
    assert reason("triton", device="cpu") == "a Triton kernel needs a GPU"
    assert reason("triton", dtype="float64") == "it computes in float32"
    assert reason("blocked", dropout=True) == reason("triton", dropout=True) == "it has no dropout"
    assert reason("dense", length=8192) == "it makes a matrix of all pairs, for at most 4096 positions"
    assert reason("gathered", length=8192, width=300, dropout=True) is None


def test_says_when_lists_and_queries_do_not_fit():
    q = k = v = torch.randn(1, 1, 9, 4)
    with pytest.raises(ValueError, match="the keys of 3 blocks of 4 queries, but got 2 lists"):
        block_sparse_attention(q, k, v, torch.zeros(1, 1, 2, 1, dtype=torch.int64), rows=4, columns=4)


def test_a_table_is_read_by_distance():
    table = torch.arange(13.0)[None] - 6  # for the distances from -6 to 6
    blocks = torch.tensor([[[[1, 0], [0, 1]]]])
    found = by_distance(table, distances(blocks, rows=4, columns=4) + 6)
    assert found.shape == (1, 1, 2, 4, 8)
    assert found[0, 0, 0, 1].tolist() == [3, 4, 5, 6, -1, 0, 1, 2]
    assert found[0, 0, 1, 3].tolist() == [-6, -6, -5, -4, -3, -2, -1, 0]
