"""Linear attention in Triton's chunks equals its recurrence in float64, forward and backward, for all tiles."""

import pytest
import torch
from torch import nn

from kernels.dispatch import tuned
from kernels.dispatch.registry import Choice
from kernels.linear_attention.chunked import EVERYWHERE, TILES, chunked_attention, fits, suited
from kernels.linear_attention.decayed_linear_attention import OPERATION as DECAYED
from kernels.linear_attention.decayed_linear_attention import (
    decayed_linear_attention,
    decayed_linear_attention_reference,
)
from kernels.linear_attention.linear_attention import EPSILON, linear_attention, linear_attention_reference
from kernels.linear_attention.linear_attention import OPERATION as NORMALISED
from kernels.rowwise.rows import triton_is_here

needs_triton = pytest.mark.skipif(not triton_is_here(), reason="Triton is not installed")


def _inputs(T, F, D, *, forgets=False, begun=False, normalised=False, heads=2, dtype=torch.float32):
    torch.default_generator.manual_seed(0)
    q, k, v = torch.rand(heads, T, F), torch.rand(heads, T, F), torch.randn(heads, T, D)
    inputs = {"q": q[None].to(dtype), "k": k[None].to(dtype), "v": v[None].to(dtype)}
    if forgets:
        inputs["decay"] = -torch.rand(1, heads, T)
    if begun:
        inputs["state"] = torch.rand(1, heads, F, D + normalised)
    return {name: x.requires_grad_() for name, x in inputs.items()}


def _near(found, expected, inputs, tolerance):
    weights = [torch.randn_like(part) for part in found]
    gradients = [
        torch.autograd.grad(sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True)), inputs)
        for parts in (found, expected)
    ]
    for one, other in zip((*found, *gradients[0]), (*expected, *gradients[1]), strict=True):
        assert (one - other).abs().max() <= tolerance * other.abs().max().clamp(min=1)


def _wide(inputs):
    return {name: x.double() for name, x in inputs.items()}


@needs_triton
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize(("T", "F", "D"), [(1, 4, 4), (37, 5, 20)])
def test_decayed_sums_equal_their_recurrence(T, F, D, forgets, begun):
    inputs = _inputs(T, F, D, forgets=forgets, begun=begun, heads=1 + (forgets and begun))
    found = chunked_attention(**inputs, **EVERYWHERE)
    # Sums of T * F products in float32.
    _near(found, decayed_linear_attention_reference(**_wide(inputs)), list(inputs.values()), T * F * 2**-24 + 2**-20)


@needs_triton
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("T", "F", "D"), [(1, 4, 4), (37, 20, 5)])
def test_normalised_sums_equal_their_recurrence(T, F, D, begun):
    inputs = _inputs(T, F, D, begun=begun, normalised=True, heads=1 + begun)
    found = chunked_attention(**inputs, normalised=True, eps=EPSILON, **EVERYWHERE)
    expected = linear_attention_reference(**_wide(inputs), causal=True)
    _near(found, expected, list(inputs.values()), T * F * 2**-24 + 2**-20)


def _corners():
    yield EVERYWHERE
    for name in ("chunk", "block_f", "block_d"):
        yield {**EVERYWHERE, name: TILES[name][-1]}
    # The compiler's parameters change at once, because the interpreter ignores them.
    yield {**EVERYWHERE, **{name: TILES[name][0] for name in ("num_warps", "num_stages", "precision")}}
    yield {name: values[-1] for name, values in TILES.items()}


@needs_triton
@pytest.mark.parametrize("tiles", list(_corners()), ids=str)
def test_no_tile_changes_the_result(tiles):
    inputs = {name: x[:, :1].detach().requires_grad_() for name, x in _inputs(18, 17, 18, forgets=True).items()}
    expected = decayed_linear_attention_reference(**_wide(inputs))
    _near(chunked_attention(**inputs, **tiles), expected, list(inputs.values()), 2**-14)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_near_the_definition(dtype):
    inputs = _inputs(20, 16, 8, normalised=True, dtype=dtype)
    out, state = chunked_attention(**inputs, normalised=True, eps=EPSILON, **EVERYWHERE)
    assert (out.dtype, state.dtype) == (dtype, torch.float32)
    # States and scores are rounded before they are multiplied, then the result.
    expected = linear_attention_reference(**_wide(inputs), causal=True)
    _near((out, state), expected, list(inputs.values()), 16 * torch.finfo(dtype).eps)


@needs_triton
def test_forgets_everything_without_becoming_nan():
    q, k, v = torch.randn(3, 1, 1, 40, 4)
    out, state = chunked_attention(q, k, v, decay=torch.full((1, 1, 40), -200.0), **EVERYWHERE)
    torch.testing.assert_close(out, (q * k).sum(3, keepdim=True) * v)
    assert state.isfinite().all()


@needs_triton
def test_reads_any_layout_and_nothing_at_all():
    q, k, v = (x.transpose(1, 2)[..., ::2] for x in torch.rand(1, 20, 3, 2, 8).unbind(2))
    expected = decayed_linear_attention_reference(q, k, v)
    torch.testing.assert_close(chunked_attention(q, k, v, **EVERYWHERE), expected, atol=1e-4, rtol=1e-4)
    state = torch.rand(1, 2, 4, 4)
    out, last = chunked_attention(q[:, :, :0], k[:, :, :0], v[:, :, :0], state=state, **EVERYWHERE)
    assert out.shape == (1, 2, 0, 4)
    torch.testing.assert_close(last, state)


@needs_triton
def test_finds_positions_that_lie_more_than_two_thousand_million_numbers_apart():
    step = 2**30 + 8
    rows = torch.as_strided(torch.empty(2 * step + 4, dtype=torch.bfloat16), (1, 1, 3, 4), (0, 0, step, 1))
    rows.copy_(torch.rand(1, 1, 3, 4))  # the memory between them is never used
    near = rows.contiguous()
    expected = chunked_attention(near, near, near, **EVERYWHERE)
    torch.testing.assert_close(chunked_attention(rows, rows, rows, **EVERYWHERE), expected)


@needs_triton
def test_is_an_operator_of_torch():
    inputs = _inputs(5, 4, 4, forgets=True, begun=True)
    tiles = [16, 16, 16, 4, 1]
    settings = (False, 0.0, "ieee", tiles)
    torch.library.opcheck(torch.ops.tessera.chunked_linear_attention, (*inputs.values(), *settings))


class _Model(nn.Module):
    def forward(self, x):
        out, _ = linear_attention(x.exp(), x.exp(), x, causal=True)
        return out + decayed_linear_attention(x, x, x)[0]


@pytest.mark.parametrize("positions", [16, 256])
def test_chunks_of_any_length_give_the_same(positions):
    inputs = _inputs(70, 5, 6)
    config = Choice.of("chunks", {"positions": positions})
    found = decayed_linear_attention(**inputs, config=config)
    torch.testing.assert_close(found, decayed_linear_attention(**inputs), atol=1e-4, rtol=1e-4)
    found = linear_attention(**inputs, causal=True, config=config)
    torch.testing.assert_close(found, linear_attention(**inputs, causal=True), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("operation", "call"), [(NORMALISED, linear_attention), (DECAYED, decayed_linear_attention)], ids=lambda each: None
)
def test_has_inputs_for_its_problems(operation, call):
    for problem in operation.problems("cpu").values():
        args, options = operation.inputs(problem, 0)
        with tuned.asked() as found:
            short = {name: x[:, :, :64] if torch.is_tensor(x) else x for name, x in options.items()}
            call(*(x[:, :, :64] for x in args), **short)
        (asked,) = found
        assert (asked.flags, asked["batch"], asked["positions"]) == (problem.flags, problem["batch"], 64)
    for problem in operation.problems("cuda").values():
        for tiles in (EVERYWHERE, {**EVERYWHERE, **suited(problem)}):
            assert fits(tiles, problem)
        assert not fits({name: values[-1] for name, values in TILES.items()}, problem)


def test_says_what_triton_refuses():
    x = torch.rand(1, 1, 3, 4)
    with pytest.raises(ValueError, match="without causality two products are enough"):
        linear_attention(x, x, x, causal=False, config=Choice.of("triton"))
    with pytest.raises(ValueError, match="a Triton kernel needs a GPU"):
        linear_attention(x, x, x, causal=True, config=Choice.of("triton"))
    with pytest.raises(ValueError, match="it computes in float32"):
        decayed_linear_attention(x.double(), x.double(), x.double(), config=Choice.of("triton"))
