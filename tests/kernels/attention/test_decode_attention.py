"""One step of decoding equals the definition of attention, with all implementations and a partly filled cache."""

import pytest
import torch

from kernels.attention.decode_attention import OPERATION, decode_attention
from kernels.attention.decode_attention import decode_attention_reference as reference
from kernels.dispatch import tuned
from kernels.dispatch.registry import Choice
from kernels.rowwise.rows import triton_is_here
from tests.kernels.near import agree

needs_triton = pytest.mark.skipif(not triton_is_here(), reason="Triton is not installed")
WAYS = ["matmul", "sdpa", "split", pytest.param("triton", marks=needs_triton)]


def _heads(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _call(name, q, k, v, settings=None, **options):
    each = OPERATION.implementations[name]
    whole = {"keys": None, "lengths": None, "bias": None, "scale": q.shape[3] ** -0.5}
    return each.call(q, k, v, **{**whole, **options}, **{**each.default, **(settings or {})})


@pytest.mark.parametrize("case", ["plain", "keys", "lengths", "bias keys lengths"])
@pytest.mark.parametrize(
    ("heads", "groups", "length", "splits"), [(1, 1, 1, 8), (4, 2, 37, 4), (3, 1, 18, 1), (2, 2, 70, 2)]
)
@pytest.mark.parametrize("name", WAYS)
def test_equals_attention_of_one_query(name, heads, groups, length, splits, case):
    torch.default_generator.manual_seed(0)
    dtype = torch.float32 if name == "triton" else torch.float64
    q, k, v = _heads(3, heads, 1, 6, dtype=dtype), *(_heads(3, groups, length, 6, dtype=dtype) for _ in range(2))
    keys = torch.rand(3, length) < 0.5
    keys[1] = False
    options = {
        "keys": keys if "keys" in case else None,
        "lengths": torch.tensor([length, 1, length // 2]) if "lengths" in case else None,
        "bias": _heads(heads, 1, length, dtype=dtype) if "bias" in case else None,
        "scale": 0.7,
    }
    inputs = [q, k, v] if options["bias"] is None else [q, k, v, options["bias"]]
    found = _call(name, q, k, v, {"splits": splits} if name in ("split", "triton") else {}, **options)
    tolerance = 100 * 2**-24 if name == "triton" else 1e-10
    agree(found, reference(q, k, v, **options), inputs, tolerance)
    if "keys" in case:
        assert not found[1].any()


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", WAYS)
def test_the_newest_keys_may_lie_apart(name, biased):
    torch.default_generator.manual_seed(0)
    dtype = torch.float32 if name == "triton" else torch.float64
    q, *kept = _heads(2, 4, 1, 6, dtype=dtype), *(_heads(2, 2, length, 6, dtype=dtype) for length in (19, 19, 3, 3))
    k, v, newest = *kept[:2], tuple(kept[2:])
    options = {"newest": newest, "bias": torch.randn(4, 1, 22, dtype=dtype) if biased else None}
    expected = reference(q, k, v, **options)
    tolerance = 100 * 2**-24 if name == "triton" else 1e-10
    agree(_call(name, q, k, v, **options), expected, [q, *kept], tolerance)
    with torch.no_grad():
        torch.testing.assert_close(_call(name, q, k, v, **options), expected, atol=tolerance, rtol=tolerance)
        with tuned.asked() as problems:
            decode_attention(q, k, v, **options)
    assert [problem["keys"] for problem in problems] == [19]


def test_refuses_more_than_one_query_and_a_gpu_where_there_is_none():
    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ValueError, match="one query, but got 2: use"):
        decode_attention(q, q, q)
    with pytest.raises(ValueError, match="neither `keys` nor `lengths` can be given"):
        decode_attention(q[:, :, :1], q, q, newest=(q, q), lengths=torch.tensor([1]))
    with pytest.raises(ValueError, match="a Triton kernel needs a GPU"):
        decode_attention(q[:, :, :1], q, q, config=Choice.of("triton"))
