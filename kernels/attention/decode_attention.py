"""Softmax attention of one query per sequence over a cache of keys and values: one step of decoding.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, eq. 1, with Tq = 1. It takes as long
as reading the cache once. B batch, H query heads, G key and value heads (H a multiple of G), R = H / G, Tk keys in the
cache, L newest keys in a separate tensor, S splits, D width of one head.

Implementations: `matmul`, two products with the heads of a group next to each other; `sdpa`, PyTorch's attention;
`split`, which divides the keys among the threads; `triton`, the same on a GPU. The default is `matmul`. On a GPU it is
`sdpa` for 16-bit types without a mask: 1.2 to 1.3 times as fast on an H100, and its scores are not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels.attention.attention import attention, attention_reference
from kernels.attention.attention import masked_attention as masked
from kernels.attention.problems import HALF, WIDEST, shared_memory
from kernels.dispatch import tuned
from kernels.dispatch.operators import operator
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Configuration, Implementation, Operation, Problem, register
from kernels.rowwise import rows

SIZES = ("batch", "heads", "groups", "keys", "width")
FLAGS = ("padded", "lengths", "bias", "gradients")
Pair = tuple[Tensor, Tensor]  # keys and values
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)


def decode_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor | None = None,
    lengths: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    newest: Pair | None = None,
) -> Tensor:
    """The definition; arguments as for `decode_attention`."""
    k, v = _joined(k, v, newest)
    return attention_reference(q, k, v, keys=_real(k, keys, lengths), bias=bias, scale=scale)


def decode_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor | None = None,
    lengths: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    newest: Pair | None = None,
    config: Choice | None = None,
) -> Tensor:
    """q: [B, H, 1, D], k and v: [B, G, Tk, D] -> [B, H, 1, D]. A query without any key gives zeros.

    keys: [B, Tk], True where a key may be read. lengths: [B], how many keys are present, counted from the first. bias:
    [H, 1, Tk], added to the scaled scores. scale: of the scores, 1 / sqrt(D) by default. newest: keys and values [B, G,
    L, D] that follow those of a full cache (then bias is [H, 1, Tk + L]): a few that were not copied into it yet, so
    the tuned choice for a cache of Tk runs. Without `config` the tuned choice runs. Raises ValueError if there is more
    than one query, or newest keys come with `keys` or `lengths`.
    """
    if newest is not None and (keys is not None or lengths is not None):
        raise ValueError("The newest keys follow a full cache, so neither `keys` nor `lengths` can be given.")
    if q.shape[2] != 1:
        raise ValueError(f"Decoding takes one query, but got {q.shape[2]}: use kernels.attention.attention for more.")
    learns = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, bias))
    sizes = (q.shape[0], q.shape[1], k.shape[1], k.shape[2], q.shape[3])
    flags = (keys is not None, lengths is not None, bias is not None, learns)
    call = tuned.implementation(OPERATION, q.device.type, computed(q), sizes, flags, config)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    if newest is None:
        return call(q, k, v, keys=keys, lengths=lengths, bias=bias, scale=scale)
    return call(q, k, v, keys=None, lengths=None, bias=bias, scale=scale, newest=newest)


def attention_step(
    q: Tensor, parts: Sequence[Pair], *, bias: Tensor | None = None, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """Attention of one query over keys and values in several parts, as a stream stores them.

    The keys need not be copied into one tensor: at 16,384 positions that copy takes eight times as long as the
    attention. q: [B, H, 1, D], parts: [B, G, L, D] each, in order -> [B, H, 1, D]. The query reads all keys. bias: [H,
    1, Tk], added to the scaled scores. `dropout`, `scale`: as for `kernels.attention.attention`. With more than two
    parts, or with dropout, the parts are copied into one tensor. Raises ValueError if there is more than one query.
    """
    if q.shape[2] != 1:
        raise ValueError(f"A step takes one query, but got {q.shape[2]}: use kernels.attention.attention for more.")
    if len(parts) <= 2 and not dropout:
        return decode_attention(q, *parts[0], bias=bias, scale=scale, newest=parts[1] if len(parts) == 2 else None)
    k, v = (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
    return attention(q, k, v, bias=bias, dropout=dropout, scale=scale)


def _joined(k: Tensor, v: Tensor, newest: Pair | None) -> Pair:
    return (k, v) if newest is None else (torch.cat([k, newest[0]], dim=2), torch.cat([v, newest[1]], dim=2))


def _real(k: Tensor, keys: Tensor | None, lengths: Tensor | None) -> Tensor | None:
    """[B, Tk], which keys may be read; None for all."""
    if lengths is None:
        return keys
    there = torch.arange(k.shape[2], device=k.device) < lengths[:, None]
    return there if keys is None else keys & there


def _part(q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows q: [.., R, D] over keys k: [.., L, D] -> sums that are not normalised, totals and maxima [.., R, 1].

    real: [.., 1, L], bias: [.., R, L].
    """
    scores = q @ k.transpose(-1, -2)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if bias is not None:
        scores = scores + bias
    if real is not None:
        scores = scores.masked_fill(~real, -math.inf)
    top = scores.detach().amax(-1, keepdim=True)
    shares = (scores - top.masked_fill(top == -math.inf, 0)).exp()
    return shares.to(v.dtype) @ v, shares.sum(-1, keepdim=True), top


def _matmul(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor | None,
    lengths: Tensor | None,
    bias: Tensor | None,
    scale: float,
    newest: Pair | None = None,
) -> Tensor:
    B, H, _, D = q.shape
    G = k.shape[1]
    real = _real(k, keys, lengths)
    heads = q.reshape(B, G, H // G, D) * scale
    scores = heads @ k.transpose(2, 3)
    if newest is not None:
        scores = torch.cat([scores, heads @ newest[0].transpose(2, 3)], dim=3)
    weights = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if bias is not None:
        weights = weights + bias.view(G, H // G, -1)
    if real is not None:
        real = real[:, None, None]
        # such a row reads everything, and its result is dropped later: no NaN in a gradient
        empty = ~real.any(3, keepdim=True)
        weights = weights.masked_fill(~(real | empty), -math.inf)
    shares = weights.softmax(3).to(v.dtype)
    old, new = (shares, None) if newest is None else shares.split((k.shape[2], newest[0].shape[2]), dim=3)
    out = old @ v
    if newest is not None and new is not None:
        out = out + new @ newest[1]
    return (out if real is None else out.masked_fill(empty, 0)).view(B, H, 1, D)


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor | None,
    lengths: Tensor | None,
    bias: Tensor | None,
    scale: float,
    newest: Pair | None = None,
) -> Tensor:
    if newest is not None:  # PyTorch's attention needs one tensor, and that copy takes longer than two products
        return _matmul(q, k, v, keys=keys, lengths=lengths, bias=bias, scale=scale, newest=newest)
    real = _real(k, keys, lengths)
    return masked(q, k, v, None if real is None else real[:, None, None], bias, scale=scale)


def _split(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor | None,
    lengths: Tensor | None,
    bias: Tensor | None,
    scale: float,
    newest: Pair | None = None,
    splits: int,
) -> Tensor:
    dtype = computed(q)  # under autocast, sums of products would otherwise return to the wider dtype
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    B, H, _, D = q.shape
    G, length = k.shape[1:3]
    real = _real(k, keys, lengths)
    query = (q.reshape(B, G, H // G, D) * scale)[:, :, None]  # [B, G, 1, R, D]
    each = length // splits
    parts = []
    # Splits of equal size in one batch of products, then the remaining keys.
    for some, count in ((slice(0, splits * each), splits if each else 0), (slice(splits * each, length), 1)):
        if count and some.start < some.stop:
            K, V = (x[:, :, some].unflatten(2, (count, -1)) for x in (k, v))
            seen = None if real is None else real[:, some].unflatten(1, (count, -1))[:, None, :, None]
            table = None if bias is None else bias[:, 0, some].view(G, H // G, count, -1).transpose(1, 2)
            parts.append(_part(query, K, V, seen, table))
    if newest is not None:
        K, V = (x[:, :, None].to(dtype) for x in newest)
        parts.append(_part(query, K, V, None, None if bias is None else bias[:, 0, length:].view(G, 1, H // G, -1)))
    if not parts:
        return torch.zeros_like(q)
    sums, totals, tops = (torch.cat(kind, dim=2) for kind in zip(*parts, strict=True))
    top = tops.amax(2, keepdim=True)
    shares = (tops - top.masked_fill(top == -math.inf, 0)).exp()  # [B, G, S, R, 1]
    total = (totals * shares).sum(2)
    out = (sums * shares).sum(2) / torch.where(total > 0, total, 1)
    return out.to(v.dtype).view(B, H, 1, D)


def _triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor | None,
    lengths: Tensor | None,
    bias: Tensor | None,
    scale: float,
    newest: Pair | None = None,
    precision: str,
    **tiles: int,
) -> Tensor:
    if newest is not None and rows.learns(q, k, v, bias, *newest):
        k, v = _joined(k, v, newest)  # the sum that would join them below passes no gradient
        newest = None
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    settings = [tiles[name] for name in TILES if name != "precision"]
    near = bias if bias is None or newest is None else bias[:, :, : k.shape[2]]
    out, total = _decode(q, k, v, keys, lengths, near, scale, precision, settings)
    if newest is None:
        return out
    B, H, _, D = q.shape
    G, R = k.shape[1], H // k.shape[1]
    later = None if bias is None else bias[:, 0, k.shape[2] :].view(G, R, -1)
    K, V = (x.to(q.dtype) for x in newest)
    sums, totals, top = _part(q.reshape(B, G, R, D) * scale, K, V, None, later)
    both = torch.maximum(total.view(B, G, R, 1), top)
    old, new = (total.view(B, G, R, 1) - both).exp(), (top - both).exp()
    whole = (out.view(B, G, R, D) * old + sums * new) / (old + totals * new)
    return whole.to(out.dtype).view(B, H, 1, D)


@operator("decode_attention")
def _decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    lengths: Tensor | None,
    bias: Tensor | None,
    scale: float,
    precision: str,
    tiles: list[int],
) -> tuple[Tensor, Tensor]:
    """(out [B, H, 1, D], LSE [B, H])."""
    from kernels.attention.decode_attention_triton import decode

    return decode(q, k, v, keys, lengths, bias, scale, precision, *tiles)


@_decode.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, keys, lengths, bias, ctx.scale, *_ = inputs
    out, lse = output
    ctx.save_for_backward(q, k, v, keys, lengths, bias, out, lse)
    ctx.mark_non_differentiable(lse)


def _gradients(ctx: Any, d_out: Tensor, _d_lse: Tensor) -> tuple:
    """Gradients by plain PyTorch: the scores are one row per head, no more than the keys."""
    q, k, v, keys, lengths, bias, out, lse = ctx.saved_tensors
    B, H, _, D = q.shape
    G = k.shape[1]
    wide = torch.promote_types(q.dtype, torch.float32)
    Q, K, V, back = (x.to(wide) for x in (q.reshape(B, G, H // G, D), k, v, d_out.reshape(B, G, H // G, D)))
    scores = Q @ K.transpose(2, 3) * ctx.scale
    if bias is not None:
        scores = scores + bias.view(G, H // G, -1)
    real = _real(k, keys, lengths)
    if real is not None:
        scores = scores.masked_fill(~real[:, None, None], -math.inf)
    total = lse.view(B, G, H // G, 1)
    shares = (scores - total.masked_fill(total == -math.inf, math.inf)).exp()
    delta = (back * out.view(B, G, H // G, D)).sum(3, keepdim=True)
    slopes = shares * (back @ V.transpose(2, 3) - delta)  # gradients of the scores
    d_q = ((slopes @ K) * ctx.scale).to(q.dtype).view(q.shape)
    d_k = (slopes.transpose(2, 3) @ Q * ctx.scale).to(k.dtype)
    d_v = (shares.transpose(2, 3) @ back).to(v.dtype)
    d_bias = slopes.sum(0).view(H, 1, -1).to(bias.dtype) if ctx.needs_input_grad[5] else None
    return d_q, d_k, d_v, None, None, d_bias, None, None, None


_decode.register_autograd(_gradients, setup_context=_keep)

TILES: dict[str, tuple] = {
    "block_k": (16, 32, 64, 128, 256),
    "splits": SPLITS,
    "num_warps": (2, 4, 8),
    "num_stages": (1, 2, 3, 4),
    "precision": ("ieee", "tf32x3"),
}


def _fits(configuration: Configuration, problem: Problem) -> bool:
    D, group = max(16, rows.power(problem["width"])), max(16, rows.power(problem["heads"] // problem["groups"]))
    half = problem.dtype in HALF
    tiles = 2 * int(configuration["block_k"]) * int(configuration["num_stages"])
    held = group * (D + int(configuration["block_k"]))
    return (
        (2 if half else 5) * D * (tiles + group) <= shared_memory()
        and held <= rows.WARP * int(configuration["num_warps"]) * 128
        and (not half or configuration["precision"] == "ieee")
    )


def _suited(problem: Problem) -> Configuration:
    """Two programs for each of the 132 processors of a Hopper GPU, but no split under 256 keys."""
    wanted = -(-264 // max(1, problem["batch"] * problem["groups"]))
    splits = max(1, min(SPLITS[-1], rows.power(wanted), problem["keys"] // 256))
    splits = max(each for each in SPLITS if each <= splits)
    if problem.dtype not in HALF:
        return {"splits": splits, "block_k": 32 if problem["width"] <= 128 else 16, "num_stages": 2}
    return {"splits": splits, "block_k": 64, "num_stages": 3 if problem["width"] <= 128 else 2}


def _needs_tiles(problem: Problem) -> str | None:
    if problem["width"] > WIDEST:
        return f"a head is at most {WIDEST} wide"
    if problem["heads"] // max(1, problem["groups"]) > 64:
        return "at most 64 heads share their keys"
    return "it computes in float32" if problem.dtype == "float64" else rows.needs_gpu(problem)


def _default(problem: Problem) -> str:
    measured = problem.device == "cuda" and problem.dtype in HALF and not any(problem[name] for name in FLAGS)
    return "sdpa" if measured else "matmul"


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    B, H, G, length, D = (problem[name] for name in SIZES)
    learns = problem["gradients"]
    generator = torch.Generator(problem.device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=generator, device=problem.device)
        return numbers.to(getattr(torch, problem.dtype)).requires_grad_(learns)

    ends = torch.randint(-(-length // 2), length + 1, (B,), generator=generator, device=problem.device)
    return (normal(B, H, 1, D), normal(B, G, length, D), normal(B, G, length, D)), {
        "keys": torch.arange(length, device=problem.device) < ends[:, None] if problem["padded"] else None,
        "lengths": ends if problem["lengths"] else None,
        "bias": normal(H, 1, length) if problem["bias"] else None,
        "scale": 1 / math.sqrt(D),
    }


def _problems(device: str) -> dict[str, Problem]:
    gpu = device == "cuda"
    dtype = "bfloat16" if gpu else "float32"
    shapes = [(8, 32, 8, 4096, 128), (1, 32, 8, 32768, 128), (64, 16, 16, 2048, 64)]
    shapes = shapes if gpu else [(1, 4, 4, 512, 16), (8, 8, 8, 1024, 32), (1, 8, 2, 16384, 64)]
    return {
        f"B{B}-H{H}-G{G}-T{T}-D{D}": OPERATION.problem(device, dtype, (B, H, G, T, D), (False,) * len(FLAGS))
        for B, H, G, T, D in shapes
    }


OPERATION = register(
    Operation(
        name="decode_attention",
        reference=decode_attention_reference,
        implementations={
            each.name: each
            for each in (
                Implementation("matmul", _matmul),
                Implementation("sdpa", _sdpa),
                Implementation("split", _split, {"splits": SPLITS}, default={"splits": 8}),
                Implementation(
                    "triton",
                    _triton,
                    TILES,
                    (_fits,),
                    default={"block_k": 16, "splits": 8, "num_warps": 4, "num_stages": 1, "precision": "ieee"},
                    suited=_suited,
                    refuses=_needs_tiles,
                    files=("kernels.attention.decode_attention_triton", "kernels.attention.tiles_triton"),
                ),
            )
        },
        inputs=_inputs,
        problems=_problems,
        default=_default,
        sizes=SIZES,
        flags=FLAGS,
    )
)
