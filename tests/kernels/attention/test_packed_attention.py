"""Packed sequences equal the definition per sequence, with all implementations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import problems as asked
from kernels.attention.attention import attention, attention_reference
from kernels.attention.packed_attention import OPERATION, packed_attention, packed_attention_reference
from kernels.dispatch.registry import Choice
from kernels.rowwise.rows import triton_is_here
from tests.kernels.near import agree

SMALL = {**asked.EVERYWHERE, "block_q": 16, "block_k": 16, "backward_own": 16, "backward_step": 16}
needs_triton = pytest.mark.skipif(not triton_is_here(), reason="Triton is not installed")
WAYS = [("sdpa", {}), ("blocked", {"rows": 16}), pytest.param("triton", SMALL, marks=needs_triton)]


def _heads(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _ends(lengths, before=0):
    return torch.tensor([before, *lengths]).cumsum(0).to(torch.int32)


@pytest.mark.parametrize("case", ["plain", "causal slopes", "window", "causal window keys"])
@pytest.mark.parametrize(("name", "configuration"), WAYS)
def test_equals_attention_of_each_sequence(name, configuration, case):
    torch.default_generator.manual_seed(0)
    dtype, tolerance = (torch.float32, 100 * 2**-24) if name == "triton" else (torch.float64, 1e-10)
    offsets = _ends([5, 0, 17, 1], 2)
    key_offsets = _ends([9, 3, 15, 0], 1) if "keys" in case else None
    # Two positions before and three after all sequences belong to none.
    q, k, v = (_heads(28, count, 6, dtype=dtype) for count in (2, 1, 1))
    options = {
        "causal": "causal" in case,
        "window": (7, 3) if "window" in case else None,
        "slopes": torch.rand(2, dtype=dtype) if "slopes" in case else None,
        "scale": 0.7,
    }
    found = OPERATION.implementations[name].call(q, k, v, offsets, key_offsets, **options, **configuration)
    assert not found[:2].any()
    assert not found[-3:].any()
    agree(found, packed_attention_reference(q, k, v, offsets, key_offsets, **options), (q, k, v), tolerance)


@needs_triton
@settings(max_examples=10)
@given(st.lists(st.integers(0, 40), min_size=0, max_size=4), st.booleans())
def test_tiles_find_their_sequence(lengths, causal):
    torch.default_generator.manual_seed(0)
    q = torch.randn(sum(lengths) + 3, 1, 4)
    found = OPERATION.implementations["triton"].call(q, q, q, _ends(lengths), causal=causal, **SMALL)
    expected = packed_attention_reference(q, q, q, _ends(lengths), causal=causal)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_sequences_of_one_length_are_a_batch():
    q = torch.randn(3, 7, 2, 4)
    packed = packed_attention(*[q.flatten(0, 1)] * 3, _ends([7, 7, 7]), causal=True)
    batch = attention(*[q.transpose(1, 2)] * 3, causal=True).transpose(1, 2)
    torch.testing.assert_close(packed.view(3, 7, 2, 4), batch)


@pytest.mark.parametrize(("name", "configuration"), WAYS[1:])
def test_a_seed_drops_the_same_in_the_backward_pass(name, configuration):
    """Rows are counted in the packed tensor, as in one batch under a mask of its sequences."""
    torch.default_generator.manual_seed(0)
    q, k, v = (_heads(37, 2, 6, dtype=torch.float32) for _ in range(3))
    offsets = _ends([20, 17])
    call = OPERATION.implementations[name].call
    torch.default_generator.manual_seed(1)
    found = call(q, k, v, offsets, dropout=0.4, **configuration)
    torch.default_generator.manual_seed(1)
    seed = torch.randint(2**62, (1,))
    heads = [x.transpose(0, 1)[None] for x in (q, k, v)]
    parts = []
    for some in (slice(0, 20), slice(20, 37)):
        one, *keys = (x[:, :, some] for x in heads)
        # The definition counts rows of its own batch: it gets all rows, and those of other sequences are dropped.
        whole = torch.zeros_like(heads[0])
        whole[:, :, some] = one
        parts.append(attention_reference(whole, *keys, dropout=0.4, seed=seed)[0, :, some].transpose(0, 1))
    agree(found, torch.cat(parts), (q, k, v), 100 * 2**-24)


@pytest.mark.parametrize("config", [None, *[Choice.of(name) for name in ("sdpa", "blocked")]], ids=str)
def test_traces_without_knowing_where_sequences_end(config):
    q, offsets = torch.randn(20, 2, 4), _ends([4, 0, 11], 2)
    slopes = torch.tensor([0.5, 0.25])

    def model(q, offsets):
        return packed_attention(q, q, q, offsets, causal=True, window=(6, 0), slopes=slopes, config=config)

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for ends in (offsets, _ends([9, 3, 8])):
        torch.testing.assert_close(compiled(q, ends), model(q, ends))


def test_says_what_is_wrong():
    q, k, offsets = torch.zeros(5, 1, 4), torch.zeros(6, 1, 4), _ends([2, 3])
    with pytest.raises(ValueError, match="5 queries and 6 keys cannot share their offsets"):
        packed_attention(q, k, k, offsets)
    with pytest.raises(ValueError, match="There are 2 sequences of queries, but 1 of keys"):
        packed_attention(q, k, k, offsets, _ends([6]))
    with pytest.raises(ValueError, match=r"none below zero, but got \(0, -1\)"):
        packed_attention(q, q, q, offsets, window=(0, -1))


def test_a_cpu_is_served_by_blocks_and_a_gpu_by_tiles():
    for device, name in (("cpu", "blocked"), ("cuda", "triton" if triton_is_here() else "blocked")):
        for problem in OPERATION.problems(device).values():
            assert OPERATION.default_choice(problem).implementation == name
            OPERATION.check(OPERATION.default_choice(problem), problem)
