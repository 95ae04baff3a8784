"""Dynamic convolution over time: each position has its own taps for each head of channels.

Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions", https://arxiv.org/abs/1901.10430,
section 4: out_{i,h,d} = sum_k taps_{i,h,k} x_{i+k,h,d}. B batch, T time, H heads, D channels of a head, K taps, N
chunks of P positions.

`banded`: P positions read P + K - 1 neighbours, so their taps are a band in a [P, P + K - 1] matrix, and one product
replaces K passes over x. Memory grows as T (P + K): there is no [T, T] matrix. `taps`: K passes over blocks that fit
the cache; the backward pass keeps only x and the taps. `triton` does the same.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from kernels.attention.diagonals import by_key
from kernels.convolution import shifted
from kernels.convolution.depthwise_convolution import BLOCKS, cached, named
from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import flops_of, operator
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Configuration, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows

# Positions. Forward and backward at B 4, T 512, H 8, D 32, float32, one core of a shared CPU, best of 7, with 8, 16,
# 32, 64, 128: K 31: 22.6, 15.7, 12.5, 13.0, 17.2 ms; K 7: 15.3, 10.8, 9.2, 10.6, 14.6 ms.
CHUNK = 32
BANDS: dict[str, Any] = {"parameters": {"positions": (8, 16, 32, 64, 128)}, "default": {"positions": CHUNK}}
TILES = {"positions": (8, 16, 32, 64, 128), "num_warps": (1, 2, 4, 8)}


def dynamic_convolution_reference(x: Tensor, taps: Tensor) -> Tensor:
    """The definition, tap by tap in float32 or wider; arguments as for `dynamic_convolution`."""
    wide = by_rows.wide(x)
    B, T, H, K = taps.shape
    heads, each = _heads(x.to(wide), H), taps.to(wide)
    out = each[..., :1] * heads[:, :T]
    for k in range(1, K):
        out = out + each[..., k, None] * heads[:, k : k + T]
    return out.reshape(B, T, x.shape[2]).to(computed(x))


def _heads(x: Tensor, H: int) -> Tensor:
    """[B, S, C] -> [B, S, H, D]."""
    return x.unflatten(2, (H, x.shape[2] // max(H, 1)))


def _banded(x: Tensor, taps: Tensor, *, positions: int) -> Tensor:
    B, T, H, K = taps.shape
    if not T:
        return dynamic_convolution_reference(x, taps)
    N, P = chunks(T, positions)
    taps = F.pad(taps, (0, 0, 0, 0, 0, N * P - T)).unflatten(1, (N, P)).transpose(2, 3)  # [B, N, H, P, K]
    out = by_key(taps, P + K - 1) @ windows(x, H, K, N, P)
    return out.transpose(2, 3).reshape(B, N * P, x.shape[2])[:, :T]


def windows(x: Tensor, H: int, K: int, N: int, P: int) -> Tensor:
    """The positions that each chunk reads: x: [B, T + K - 1, H * D] -> [B, N, H, P + K - 1, D]."""
    x = F.pad(x, (0, 0, 0, N * P + K - 1 - x.shape[1])).unfold(1, P + K - 1, P)  # [B, N, H * D, P + K - 1]
    return x.unflatten(2, (H, -1)).transpose(3, 4)


def chunks(length: int, most: int = CHUNK) -> tuple[int, int]:
    """(number of chunks, positions of a chunk) of a pass over `length` positions."""
    positions = min(length, most)
    return -(-length // positions), positions


@operator("dynamic_convolution")
def _forward(x: Tensor, taps: Tensor, how: str, tiles: list[int]) -> Tensor:
    y = _result(x, taps)
    if y.numel() and how == "triton":
        from kernels.convolution import dynamic_convolution_triton

        dynamic_convolution_triton.convolve(x, taps, y, 1, tiles)
    elif y.numel():
        H = taps.shape[2]
        shifted.weighted(_heads(x, H), _first(taps), _heads(y, H), *tiles)
    return y


@_forward.register_fake
def _(x: Tensor, taps: Tensor, how: str, tiles: list[int]) -> Tensor:
    return _result(x, taps)


def _result(x: Tensor, taps: Tensor) -> Tensor:
    return x.new_empty(*taps.shape[:2], x.shape[2])


def _first(taps: Tensor) -> Tensor:
    """[B, T, H, K] -> [K, B, T, H, 1]."""
    return taps.permute(3, 0, 1, 2)[..., None]


@operator("dynamic_convolution_backward")
def _backward(
    dy: Tensor, x: Tensor, taps: Tensor, how: str, tiles: list[int], wants: list[bool]
) -> tuple[Tensor, Tensor]:
    dx, d_taps = shifted.empty_gradients(x, taps, wants)
    if not dy.numel():
        return dx.zero_(), d_taps.zero_()
    H, K = taps.shape[2:]
    if how == "triton":
        from kernels.convolution import dynamic_convolution_triton as kernels

        if wants[0]:
            kernels.convolve(dy, taps, dx, -1, tiles)
        if wants[1]:
            kernels.products(dy, x, d_taps, tiles)
        return dx, d_taps
    back = _heads(dy, H)
    if wants[0]:
        dx = shifted.returned(back, _first(taps), *tiles).flatten(2)
    if wants[1]:
        for k, part, product in shifted.products(back, _heads(x, H), K, *tiles):
            d_taps[:, part, :, k] = product.sum(3)
    return dx, d_taps


@_backward.register_fake
def _(dy: Tensor, x: Tensor, taps: Tensor, how: str, tiles: list[int], wants: list[bool]) -> tuple[Tensor, Tensor]:
    return shifted.empty_gradients(x, taps, wants)


shifted.differentiable(_forward, _backward)


@flops_of(_forward)
def _flops(x: Any, taps: Any, *_: Any, **__: Any) -> int:
    """Counts only the products with taps."""
    return 2 * taps[0] * taps[1] * taps[3] * x[2]


@flops_of(_backward)
def _backward_flops(dy: Any, x: Any, taps: Any, how: Any, tiles: Any, wants: Any, **_: Any) -> int:
    return sum(wants) * _flops(x, taps)


def _operator(x: Tensor, taps: Tensor, how: str, *tiles: int) -> Tensor:
    dtype = computed(x)
    return _forward(x.to(dtype), taps.to(dtype), how, list(tiles))


def _taps(x: Tensor, taps: Tensor, *, positions: int) -> Tensor:
    return _operator(x, taps, "taps", positions)


def _triton(x: Tensor, taps: Tensor, *, positions: int, num_warps: int) -> Tensor:
    return _operator(x, taps, "triton", positions, num_warps)


def dynamic_convolution(x: Tensor, taps: Tensor, *, config: Choice | None = None) -> Tensor:
    """x: [B, T + K - 1, H * D], already padded at both ends; taps: [B, T, H, K] -> [B, T, H * D].

    Without `config` the tuned choice for this problem runs. Raises ValueError if x and taps do not fit together.
    """
    B, T, H, K = taps.shape
    C = x.shape[2]
    if x.shape[:2] != (B, T + K - 1) or C % max(H, 1):
        raise ValueError(
            f"x must be [{B}, {T + K - 1}, a multiple of {H}] for taps {list(taps.shape)}, but it is {list(x.shape)}."
        )
    flags = (by_rows.learns(x, taps),)
    return tuned.implementation(OPERATION, x.device.type, computed(x), (B, T, C, H, K), flags, config)(x, taps)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    B, T, C, H, K = (problem[name] for name in SIZES)
    x, scores = by_rows.numbers(problem, seed, (B, T + K - 1, C), (B, T, H, K))
    return (x, scores.detach().softmax(3).requires_grad_(problem["gradients"])), {}


def _width(problem: Problem) -> int:
    return min(shifted.WIDEST, by_rows.power(problem["channels"] // max(problem["heads"], 1)))


def _fits(configuration: Configuration, problem: Problem) -> bool:
    """At most 32 numbers per thread, and no more warps than there are numbers."""
    numbers, warps = int(configuration["positions"]) * _width(problem), int(configuration["num_warps"])
    return numbers <= 32 * by_rows.WARP * warps and (numbers >= by_rows.WARP * warps or warps == 1)


def _suited(problem: Problem) -> dict[str, Any]:
    """Tiles of 1,024 numbers, 16 per thread."""
    return {"positions": min(128, max(8, 1024 // _width(problem))), "num_warps": 2}


def _default(problem: Problem) -> str:
    """Passes if a block fits the cache; on a GPU products, because each pass would be a separate kernel.

    Forward and backward in float32, one core of a shared CPU, best of 5, microseconds of CPU time per position with
    `taps` and with `banded` at its best length: B 4, T 512, C 256, K 7, H 4: 2.0 and 3.4; K 31, H 8: 7.2 and 6.3; B 1,
    T 2048, C 1024, K 7, H 16: 6.9 and 15.5; C 512, K 31, H 8: 11.7 and 12.5.
    """
    return "taps" if problem.device == "cpu" else "banded"


SIZES = ("batch", "positions", "channels", "heads", "taps")
OPERATION = register(
    Operation(
        name="dynamic_convolution",
        reference=dynamic_convolution_reference,
        implementations={
            "banded": Implementation("banded", _banded, **BANDS, files=("kernels.attention.diagonals",)),
            "taps": Implementation(
                "taps", _taps, BLOCKS, default={"positions": 256}, suited=cached, files=("kernels.convolution.shifted",)
            ),
            "compiled": compiled(dynamic_convolution_reference),
            "triton": Implementation(
                "triton",
                _triton,
                TILES,
                (_fits,),
                default={"positions": 32, "num_warps": 2},
                suited=_suited,
                refuses=by_rows.needs_gpu,
                files=("kernels.convolution.dynamic_convolution_triton",),
            ),
        },
        inputs=_inputs,
        problems=named(
            "dynamic_convolution",
            small=[(4, 512, 256, 4, 7), (1, 2048, 512, 8, 31)],
            large=[(8, 2048, 1024, 16, 7), (8, 4096, 1024, 16, 31)],
        ),
        default=_default,
        sizes=SIZES,
        flags=("gradients",),
    )
)
