"""Softmax attention over keys and values, with grouped queries, padding, causality, windows and additive biases.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, eq. 1: softmax(Q K^T / sqrt(D)) V. B
batch, H query heads, G key and value heads (H a multiple of G), Tq queries, Tk keys, D width of one head.

The causal diagonal is aligned to the bottom right: the last query reads the last key, so the first Tk - Tq keys are in
the past of the first query. A query without any allowed key gives zeros.

Implementations: `sdpa` is PyTorch's own and picks one of its backends; `sdpa_flash` and the like fix the backend;
`blocked` computes a block of queries at a time; `triton` is exact attention in tiles. The default is `sdpa`. The
default with a window, which needs no matrix of all pairs, is `triton` on a GPU and `blocked` elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.attention import problems as asked
from kernels.attention.blocked import attention_blocked
from kernels.attention.weight_dropout import draw, dropped_of, kept
from kernels.dispatch import tuned, work
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Implementation, Operation, register

Window = tuple[int, int]


def attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    window: Window | None = None,
    slopes: Tensor | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    """The definition, with the whole matrix of scores; arguments as for `attention`.

    Drops the weights that `seed` [1] selects; without a seed it drops none.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    groups = q.shape[1] // k.shape[1]
    K, V = (heads.to(wide).repeat_interleave(groups, dim=1) for heads in (k, v))
    scores = q.to(wide) @ K.transpose(2, 3) * (1 / math.sqrt(q.shape[3]) if scale is None else scale)  # [B, H, Tq, Tk]
    distance = _distance(q, k)
    if bias is not None:
        scores = scores + of_pairs(bias, q, k)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * distance.abs()
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if causal:
        allowed = allowed & (distance <= 0)
    if window is not None:
        allowed = allowed & (distance >= -window[0]) & (distance <= window[1])
    if keys is not None:
        allowed = allowed & keys[:, None, None, :]
    if not scores.shape[3]:
        return torch.zeros_like(q)
    weights = (scores - scores.amax(3, keepdim=True)).exp() * allowed
    # The denominator is one if the row is empty, so that neither its zeros nor their gradients become NaN.
    total = weights.sum(3, keepdim=True)
    weights = weights / torch.where(total > 0, total, 1)
    if seed is not None:
        rows = torch.arange(weights.shape[:3].numel(), device=q.device).view(weights.shape[:3])
        weights = weights * kept(seed, rows, range(k.shape[2]), dropped_of(dropout), wide)
    return (weights @ V).to(q.dtype)


def _distance(q: Tensor, k: Tensor) -> Tensor:
    """[Tq, Tk], the position of a key minus that of the query."""
    places = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    return torch.arange(k.shape[2], device=q.device) - places


def of_pairs(bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """bias: [H, Tq, Tk] as it is, or [H, Tq + Tk - 1] by distance -> [H, Tq, Tk]."""
    if bias.dim() == 3:
        return bias
    # The row of each query begins one number before that of the previous query.
    return bias.unfold(1, k.shape[2], 1).flip(1) if q.shape[2] else bias.new_empty(len(bias), 0, k.shape[2])


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    window: Window | None = None,
    slopes: Tensor | None = None,
    config: Choice | None = None,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D].

    keys: [B, Tk], True where a key may be read. bias: added to the scaled scores; [H, Tq, Tk], or [H, Tq + Tk - 1] by
    the position of the key minus that of the query, from 1 - Tk to Tq - 1 (T5, https://arxiv.org/abs/1910.10683).
    dropout: the share of weights set to zero, drawn from torch's generator. scale: of the scores, 1 / sqrt(D) by
    default. window: how many keys to the left and to the right of its own position a query reads. slopes: [H]; the
    slope times the distance of a key is subtracted from its score (ALiBi, https://arxiv.org/abs/2108.12409); constants,
    without gradient.

    Without `config` the tuned choice for this problem runs. `blocked` and `triton` need O(Tq + Tk) memory in addition
    to a bias and its gradient. `sdpa` holds a mask of [B, Tq, Tk] or [H, Tq, Tk] unless causality is the only
    restriction. Raises ValueError if causal attention has fewer keys than queries, a window is negative, a bias has the
    wrong size, or slopes need a gradient.
    """
    queries, length = q.shape[2], k.shape[2]
    if causal and queries > length:
        raise ValueError(f"Causal attention needs a key for every query, but got {queries} queries and {length} keys.")
    if window is not None and min(window) < 0:
        raise ValueError(f"A window must be two numbers of keys, none below zero, but got {window}.")
    if bias is not None and bias.dim() == 2 and bias.shape[1] != queries + length - 1:
        raise ValueError(
            f"A bias by distance is [heads, queries + keys - 1], here {queries + length - 1} numbers per head, but got "
            f"{list(bias.shape)}."
        )
    if slopes is not None and slopes.requires_grad:
        raise ValueError("Slopes are constants, but these need a gradient: detach them, or pass a bias instead.")
    # Branches instead of expressions: a trace may leave length and dropout open, but the problem needs definite values.
    if queries == 1:
        causal = False  # a single query reads all keys
    drops = True
    if not dropout:
        drops, dropout = False, 0.0
    B, H, _, D = q.shape
    sizes = (B, H, k.shape[1], queries, length, D, length if window is None else min(length, sum(window) + 1))
    learns = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    biased = "none"
    if bias is not None:
        biased = "learned" if bias.requires_grad and torch.is_grad_enabled() else "fixed"
        biased += "_by_distance" if bias.dim() == 2 else ""
    seen = (causal, window is not None, keys is not None)
    flags = (*seen, biased, slopes is not None, drops, learns)
    call = tuned.implementation(OPERATION, q.device.type, computed(q), sizes, flags, config)
    return call(
        q, k, v, causal=causal, keys=keys, bias=bias, dropout=dropout, scale=scale, window=window, slopes=slopes
    )


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    window: Window | None = None,
    slopes: Tensor | None = None,
) -> Tensor:
    """PyTorch's own attention, with a mask for what it has no argument for; arguments as for `attention`."""
    queries, length = q.shape[2], k.shape[2]
    if queries == 1:
        causal = False
    if keys is None and bias is None and window is None and slopes is None and (not causal or queries == length):
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, dropout_p=dropout, scale=scale, enable_gqa=_grouped(q, k)
        )
    allowed = None if keys is None else keys[:, None, None, :]
    if causal:
        past = torch.ones(queries, length, dtype=torch.bool, device=q.device).tril(length - queries)
        allowed = past[None, None] if allowed is None else allowed & past
    if window is not None:
        near = (_distance(q, k) >= -window[0]) & (_distance(q, k) <= window[1])
        allowed = near[None, None] if allowed is None else allowed & near
    if slopes is not None:
        falling = -slopes[:, None, None] * _distance(q, k).abs()
        bias = falling if bias is None else of_pairs(bias, q, k) + falling
    elif bias is not None:
        bias = of_pairs(bias, q, k)
    may_be_empty = keys is not None or window is not None or (causal and queries > length)
    return masked_attention(q, k, v, allowed, bias, dropout=dropout, scale=scale, may_be_empty=may_be_empty)


def _grouped(q: Tensor, k: Tensor) -> bool:
    """Whether query heads share keys. A branch, because in a trace with open sizes the comparison itself is no bool."""
    if q.shape[1] != k.shape[1]:  # noqa: SIM103
        return True
    return False


def _by(backend: SDPBackend) -> Callable[..., Tensor]:
    """`sdpa` with one of its backends. Each backend needs contiguous features."""

    def call(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        with sdpa_kernel(backend):
            return sdpa(*(x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v)), **options)

    return call


def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    *,
    dropout: float = 0.0,
    scale: float | None = None,
    may_be_empty: bool = True,
) -> Tensor:
    """Attention under any mask. q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D].

    allowed: bool, [.., 1, .., Tk], broadcast to the scores. bias: [H, Tq, Tk]. may_be_empty: whether some query may
    have no key at all; such a row gives zeros and passes no gradient.
    """
    empty = None
    if allowed is not None and may_be_empty:
        # On a CPU torch gives zeros here, but no backend promises them, and a NaN would survive in the gradient of a
        # masked result. So an empty row reads everything, and its result is dropped afterwards.
        empty = ~allowed.any(dim=3, keepdim=True)
        allowed = allowed | empty
    mask = allowed
    if bias is not None:
        mask = bias[None].to(q.dtype)
        mask = mask if allowed is None else torch.where(allowed, mask, -math.inf)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale, enable_gqa=_grouped(q, k)
    )
    return out if empty is None else out.masked_fill(empty, 0)


def reach(causal: bool, window: Window | None) -> tuple[int | None, int | None]:
    """How many keys to the left and to the right of its own position a query reads; None means all."""
    left, right = (None, None) if window is None else window
    return left, 0 if causal else right


def _blocked(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, dropout: float, window: Window | None, **options: Any
) -> Tensor:
    left, right = reach(causal, window)
    seed = draw(dropout, q.device)
    return attention_blocked(q, k, v, left=left, right=right, dropout=dropout, seed=seed, **options)


def _triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    keys: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    scale: float | None,
    window: Window | None,
    slopes: Tensor | None,
    precision: str,
    **tiles: int,
) -> Tensor:
    from kernels.attention.attention_triton import attention_triton

    left, right = reach(causal, window)
    settings = [tiles[name] for name in asked.TILES if name != "precision"]
    out, _ = attention_triton(
        q, k, v, left=left, right=right, keys=keys, bias=bias, slopes=slopes, scale=scale, precision=precision,
        forward=settings[:4], backward=settings[4:], dropout=dropout, seed=draw(dropout, q.device),
    )  # fmt: skip
    return out


OPERATION = register(
    Operation(
        name="attention",
        reference=attention_reference,
        implementations={
            each.name: each
            for each in (
                Implementation("sdpa", sdpa),
                Implementation("sdpa_flash", _by(SDPBackend.FLASH_ATTENTION), refuses=asked.refuses_flash),
                Implementation("sdpa_efficient", _by(SDPBackend.EFFICIENT_ATTENTION), refuses=asked.refuses_efficient),
                Implementation("sdpa_cudnn", _by(SDPBackend.CUDNN_ATTENTION), refuses=asked.refuses_cudnn),
                Implementation("sdpa_math", _by(SDPBackend.MATH), work=work.whole_scores),
                Implementation(
                    "blocked",
                    _blocked,
                    asked.BLOCKS,
                    default={"rows": 64, "sequences": 1},
                    files=asked.BLOCKED,
                ),
                Implementation(
                    "triton",
                    _triton,
                    asked.TILES,
                    (asked.fits, asked.varies_what_runs),
                    default=asked.EVERYWHERE,
                    suited=asked.suited,
                    refuses=asked.needs_tiles,
                    work=work.attention,
                    files=asked.TILED,
                ),
            )
        },
        inputs=asked.inputs,
        problems=asked.named("attention"),
        default=asked.default,
        sizes=asked.SIZES,
        flags=asked.FLAGS,
        lean=asked.lean,
    )
)
