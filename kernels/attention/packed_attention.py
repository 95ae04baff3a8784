"""Softmax attention of sequences of any lengths, stored end to end without padding; a query reads only its own
sequence.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, eq. 1, for each sequence separately.
P positions of all sequences together, N sequences, H query heads, G key and value heads (H a multiple of G), D width of
one head. Sequence n is rows offsets[n] to offsets[n + 1]. Rows before offsets[0] and from offsets[N] on belong to no
sequence and give zeros, so a tensor may keep its size while its contents change.

Implementations: `triton`, tiles that know their sequence, without reading numbers back from the GPU; `blocked`, a block
of queries of one sequence at a time; `sdpa`, PyTorch's attention for each sequence. The default is `triton` on a GPU
and `blocked` on a CPU.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from kernels.attention import problems as asked
from kernels.attention.attention import Window, attention_reference, masked_attention, reach, sdpa
from kernels.attention.blocked import attention_blocked
from kernels.attention.weight_dropout import draw
from kernels.dispatch import tuned
from kernels.dispatch.mode import is_plain
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, register
from kernels.rowwise.rows import learns, numbers

SIZES = ("sequences", "heads", "groups", "queries", "keys", "width")
FLAGS = ("causal", "window", "slopes", "dropout", "gradients")


def packed_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    key_offsets: Tensor | None = None,
    *,
    causal: bool = False,
    window: Window | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """The definition, one sequence after the other; arguments as for `packed_attention`, but it has no dropout."""
    out = torch.zeros_like(q)
    options: dict[str, Any] = {"causal": causal, "window": window, "slopes": slopes, "scale": scale}
    for own, read in _sequences(offsets, key_offsets):
        out[own] = _rows(attention_reference(*_batches(q[own], k[read], v[read]), **options))
    return out


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    key_offsets: Tensor | None = None,
    *,
    causal: bool = False,
    window: Window | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    config: Choice | None = None,
) -> Tensor:
    """q: [P, H, D], k and v: [P, G, D] -> [P, H, D]; offsets: [N + 1], int32 or int64, ascending, on the device of q.

    key_offsets: the offsets of the keys, if sequences have other numbers of keys than of queries. Other arguments as
    for `attention`, within each sequence: its last query reads its last key. Time is that of the pairs within
    sequences, memory is O(P). Without `config` the tuned choice for this problem runs. Raises ValueError if the offsets
    do not fit the keys, a window is negative, or slopes need a gradient.
    """
    if k.shape[0] != q.shape[0] and key_offsets is None:
        raise ValueError(
            f"{q.shape[0]} queries and {k.shape[0]} keys cannot share their offsets: pass those of the keys as "
            "key_offsets."
        )
    if window is not None and min(window) < 0:
        raise ValueError(f"A window must be two numbers of keys, none below zero, but got {window}.")
    if slopes is not None and slopes.requires_grad:
        raise ValueError("Slopes are constants, but these need a gradient: detach them.")
    key_offsets = offsets if key_offsets is None else key_offsets
    if key_offsets.shape != offsets.shape:
        raise ValueError(f"There are {len(offsets) - 1} sequences of queries, but {len(key_offsets) - 1} of keys.")
    sizes = (len(offsets) - 1, q.shape[1], k.shape[1], q.shape[0], k.shape[0], q.shape[2])
    flags = (causal, window is not None, slopes is not None, bool(dropout), learns(q, k, v))
    call = tuned.implementation(OPERATION, q.device.type, computed(q), sizes, flags, config)
    return call(
        q, k, v, offsets, key_offsets, causal=causal, window=window, slopes=slopes, dropout=dropout, scale=scale
    )


def _batches(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each [P, H, D] -> [1, H, P, D]."""
    return q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None]


def _rows(out: Tensor) -> Tensor:
    """[1, H, P, D] -> [P, H, D]."""
    return out[0].transpose(0, 1)


def _sequences(offsets: Tensor, key_offsets: Tensor | None) -> list[tuple[slice, slice]]:
    """The rows of the queries and of the keys of each sequence."""
    bounds = (each.tolist() for each in (offsets, offsets if key_offsets is None else key_offsets))
    return list(zip(*([slice(*pair) for pair in itertools.pairwise(each)] for each in bounds), strict=True))


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    key_offsets: Tensor | None = None,
    *,
    causal: bool = False,
    window: Window | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    if torch.compiler.is_compiling() or is_plain():
        return _masked(q, k, v, offsets, key_offsets, causal, window, slopes, dropout, scale)
    options: dict[str, Any] = {"causal": causal, "window": window, "slopes": slopes, "dropout": dropout, "scale": scale}
    outs, end = [], 0
    for own, read in _sequences(offsets, key_offsets):
        outs.append(q.new_zeros(q[end : own.start].shape, dtype=computed(q)))
        outs.append(_rows(sdpa(*_batches(q[own], k[read], v[read]), **options)))
        end = own.stop
    return torch.cat([*outs, q.new_zeros(q[end:].shape, dtype=computed(q))])


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    key_offsets: Tensor | None,
    causal: bool,
    window: Window | None,
    slopes: Tensor | None,
    dropout: float,
    scale: float | None,
) -> Tensor:
    """The same under a mask of all pairs: a trace does not know where sequences end."""
    ends = offsets if key_offsets is None else key_offsets
    own, place = _places(q, offsets)
    read, key_place = _places(k, ends)
    # how many more keys than queries each sequence has
    past = torch.nn.functional.pad(ends.diff() - offsets.diff(), (1, 1))
    distance = key_place - (place + past[own])[:, None]
    allowed = (own[:, None] == read) & (own > 0)[:, None] & (own < len(offsets))[:, None]
    left, right = reach(causal, window)
    allowed = allowed if left is None else allowed & (distance >= -left)
    allowed = allowed if right is None else allowed & (distance <= right)
    bias = None if slopes is None else -slopes[:, None, None] * distance.abs()
    return _rows(masked_attention(*_batches(q, k, v), allowed[None, None], bias, dropout=dropout, scale=scale))


def _places(x: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """For each row its sequence, from 1 on, and its position there; 0 and N + 1 mean before and after all sequences."""
    row = torch.arange(len(x), device=x.device)
    sequence = torch.searchsorted(offsets.long(), row, right=True)
    return sequence, row - torch.nn.functional.pad(offsets, (1, 0))[sequence]


def _blocked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    key_offsets: Tensor | None = None,
    *,
    causal: bool = False,
    window: Window | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    rows: int,
) -> Tensor:
    left, right = reach(causal, window)
    return _rows(
        attention_blocked(
            *_batches(q, k, v), left=left, right=right, keys=None, bias=None, slopes=slopes, scale=scale,
            dropout=dropout, seed=draw(dropout, q.device), offsets=offsets,
            key_offsets=offsets if key_offsets is None else key_offsets, rows=rows, sequences=1,
        )
    )  # fmt: skip


def _triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    key_offsets: Tensor | None = None,
    *,
    causal: bool = False,
    window: Window | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    precision: str,
    **tiles: int,
) -> Tensor:
    from kernels.attention.attention_triton import attention_triton

    left, right = reach(causal, window)
    settings = [tiles[name] for name in asked.TILES if name != "precision"]
    out, _ = attention_triton(
        *_batches(q, k, v), left=left, right=right, keys=None, bias=None, slopes=slopes, scale=scale,
        precision=precision, forward=settings[:4], backward=settings[4:], dropout=dropout,
        seed=draw(dropout, q.device), offsets=offsets, key_offsets=offsets if key_offsets is None else key_offsets,
    )  # fmt: skip
    return _rows(out)


def _default(problem: Problem) -> str:
    return "triton" if asked.needs_tiles(problem) is None else "blocked"


def _lean(problem: Problem) -> str | None:
    """As for attention over a single sequence."""
    return "blocked" if 8 * problem["heads"] * problem["queries"] * problem["keys"] > 2**29 else None


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    N, H, G, queries, keys, D = (problem[name] for name in SIZES)
    q, k, v = numbers(problem, seed, (queries, H, D), (keys, G, D), (keys, G, D))
    generator = torch.Generator(problem.device).manual_seed(seed)

    def ends(length: int) -> Tensor:
        """Random ends of the sequences, up to `length`."""
        inner = torch.randint(0, length + 1, (max(N - 1, 0),), generator=generator, device=problem.device)
        edges = inner.new_tensor([0]), inner.sort().values, inner.new_tensor([length] if N else [])
        return torch.cat(edges).to(torch.int32)

    offsets = ends(queries)
    return (q, k, v, offsets, offsets if queries == keys else ends(keys)), {
        "causal": problem["causal"],
        "window": (64, 64) if problem["window"] else None,
        "slopes": torch.logspace(-1, -8, H, base=2, device=problem.device) if problem["slopes"] else None,
        # So small that nothing is dropped and results can be compared, but the code for dropout runs.
        "dropout": 1e-12 if problem["dropout"] else 0.0,
        "scale": None,
    }


def _problems(device: str) -> dict[str, Problem]:
    large, small = [(8, 32, 8, 16384, 128), (32, 16, 16, 16384, 64)], [(8, 4, 4, 512, 16), (8, 8, 2, 2048, 64)]
    shapes = {
        f"N{N}-H{H}-G{G}-P{P}-D{D}": (N, H, G, P, P, D) for N, H, G, P, D in (large if device == "cuda" else small)
    }
    return OPERATION.named(device, shapes, causal=True)


OPERATION = register(
    Operation(
        name="packed_attention",
        reference=packed_attention_reference,
        implementations={
            each.name: each
            for each in (
                Implementation("sdpa", _sdpa, files=("kernels.attention.attention",)),
                Implementation(
                    "blocked", _blocked, {"rows": asked.BLOCKS["rows"]}, default={"rows": 64}, files=asked.BLOCKED
                ),
                Implementation(
                    "triton",
                    _triton,
                    asked.TILES,
                    (asked.fits, asked.varies_what_runs),
                    default=asked.EVERYWHERE,
                    suited=asked.suited,
                    refuses=asked.needs_tiles,
                    files=asked.TILED,
                ),
            )
        },
        inputs=_inputs,
        problems=_problems,
        default=_default,
        lean=_lean,
        sizes=SIZES,
        flags=FLAGS,
    )
)
