"""Depthwise convolution over time: each channel is filtered with its own taps.

Chollet 2017, "Xception", https://arxiv.org/abs/1610.02357; Wu et al. 2019, https://arxiv.org/abs/1901.10430, eq. 1:
out_{i,c} = sum_k weight_{c,k} x_{i+k,c}. B batch, T time, C channels, K taps. The implementations also take H rows of
taps, each for C / H neighbouring channels: `kernels.convolution.lightweight_convolution`.

`conv1d` and `conv2d` are torch's own, over a line and over an image of height 1. The image is read in its layout,
without a copy that puts time last. `image` uses that image in both directions, because dx is an image convolved with
the reversed taps; it sums the gradients of the taps in blocks. `taps` computes everything in blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.convolution import shifted
from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import flops_of, operator
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Configuration, Implementation, Operation, Problem, register, registered
from kernels.rowwise import rows as by_rows

POSITIONS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # of a block on a CPU
FEW = 3  # up to this number of taps torch sums their gradients with a special kernel
CACHED = 2**18  # numbers of such a block: larger than for rows, because they are read K times
TILES = {
    "positions": (8, 16, 32, 64, 128),
    "channels": (32, 64, 128, 256),
    "num_warps": (1, 2, 4, 8),
    "programs": (16, 64, 256),
}
EVERYWHERE = {"positions": 16, "channels": 64, "num_warps": 2, "programs": 64}


def depthwise_convolution_reference(x: Tensor, weight: Tensor) -> Tensor:
    """The definition, tap by tap in float32 or wider; arguments as for `depthwise_convolution`."""
    T, wide = length(x, weight), x.to(by_rows.wide(x))
    each = by_channel(weight, x).to(wide.dtype)
    y = wide[:, :T] * each[:, 0]
    for k in range(1, weight.shape[1]):
        y = y + wide[:, k : k + T] * each[:, k]
    return y.to(computed(x))


def length(x: Tensor, weight: Tensor) -> int:
    """T for x: [B, T + K - 1, C] and weight: [.., K]: K - 1 positions of x are only neighbours."""
    return x.shape[1] - weight.shape[1] + 1


def by_channel(weight: Tensor, x: Tensor) -> Tensor:
    """weight: [H, K] -> [C, K], for x: [.., C]."""
    each = x.shape[2] // max(len(weight), 1)
    return weight if each == 1 else weight.repeat_interleave(each, dim=0)


@operator("depthwise_convolution")
def _forward(x: Tensor, weight: Tensor, how: str, tiles: list[int]) -> Tensor:
    """weight: [H, K] for `triton`, else [C, K]."""
    y = _result(x, weight)
    if y.numel() and how == "triton":
        from kernels.convolution import depthwise_convolution_triton

        depthwise_convolution_triton.convolve(x, weight, y, 1, tiles)
    elif y.numel() and how == "image":
        return _picture(x, weight, 0).contiguous()
    elif y.numel():
        shifted.weighted(x, _everywhere(weight, y), y, *tiles)
    return y


@_forward.register_fake
def _(x: Tensor, weight: Tensor, how: str, tiles: list[int]) -> Tensor:
    return _result(x, weight)


def _result(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], length(x, weight), x.shape[2])


def _picture(x: Tensor, weight: Tensor, padding: int) -> Tensor:
    """Convolve x as an image of height 1 whose channels are contiguous, [B, C, 1, T + K - 1] -> [B, T, C]."""
    image = x.transpose(1, 2).unsqueeze(2)
    out = F.conv2d(image, weight[:, None, None], padding=(0, padding), groups=len(weight))
    return out.squeeze(2).transpose(1, 2)


def _everywhere(weight: Tensor, y: Tensor) -> Tensor:
    """weight: [C, K] -> [K, B, T, C], the same numbers at all positions of y: [B, T, C]."""
    return weight.t().contiguous()[:, None, None].expand(-1, *y.shape)


@operator("depthwise_convolution_backward")
def _backward(
    dy: Tensor, x: Tensor, weight: Tensor, how: str, tiles: list[int], wants: list[bool]
) -> tuple[Tensor, Tensor]:
    dx, dw = shifted.empty_gradients(x, weight, wants)
    if not dy.numel():
        return dx.zero_(), dw.zero_()
    K = weight.shape[1]
    if how == "triton":
        from kernels.convolution import depthwise_convolution_triton as kernels

        if wants[0]:
            kernels.convolve(dy, weight, dx, -1, tiles)
        if wants[1]:
            dw.copy_(kernels.products(dy, x, weight, tiles))
        return dx, dw
    if wants[0] and how == "image":
        dx = _picture(dy, weight.flip(1), K - 1).contiguous()
    elif wants[0]:
        dx = shifted.returned(dy, _everywhere(weight, dy), *tiles)
    if wants[1]:
        sums = torch.zeros(K, len(weight), dtype=by_rows.wide(x), device=x.device)
        for k, _, product in shifted.products(dy, x, K, *tiles):
            sums[k] += product.sum((0, 1))
        dw.copy_(sums.t())
    return dx, dw


@_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor, how: str, tiles: list[int], wants: list[bool]) -> tuple[Tensor, Tensor]:
    return shifted.empty_gradients(x, weight, wants)


shifted.differentiable(_forward, _backward)


@flops_of(_forward)
def _flops(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """The count that torch gives for a convolution."""
    return 2 * x[0] * (x[1] - weight[1] + 1) * x[2] * weight[1]


@flops_of(_backward)
def _backward_flops(dy: Any, x: Any, weight: Any, how: Any, tiles: Any, wants: Any, **_: Any) -> int:
    return sum(wants) * _flops(x, weight)


def _operator(x: Tensor, weight: Tensor, how: str, *tiles: int) -> Tensor:
    dtype = computed(x)
    return _forward(x.to(dtype), weight.to(dtype), how, list(tiles))


def _conv1d(x: Tensor, weight: Tensor) -> Tensor:
    if not _result(x, weight).numel():
        return depthwise_convolution_reference(x, weight)
    return F.conv1d(x.transpose(1, 2), by_channel(weight, x)[:, None], groups=x.shape[2]).transpose(1, 2)


def _conv2d(x: Tensor, weight: Tensor) -> Tensor:
    if not _result(x, weight).numel():
        return depthwise_convolution_reference(x, weight)
    return _picture(x, by_channel(weight, x), 0)


def _image(x: Tensor, weight: Tensor, *, positions: int) -> Tensor:
    return _operator(x, by_channel(weight, x), "image", positions)


def _taps(x: Tensor, weight: Tensor, *, positions: int) -> Tensor:
    return _operator(x, by_channel(weight, x), "taps", positions)


def _triton(x: Tensor, weight: Tensor, *, positions: int, channels: int, num_warps: int, programs: int) -> Tensor:
    return _operator(x, weight, "triton", positions, channels, num_warps, programs)


def depthwise_convolution(x: Tensor, weight: Tensor, *, config: Choice | None = None) -> Tensor:
    """x: [B, T + K - 1, C], already padded at both ends; weight: [C, K] -> [B, T, C].

    Without `config` the tuned choice for this problem runs. Raises ValueError if the channels differ or x is too short.
    """
    B, _, C = x.shape
    if len(weight) != C:
        raise ValueError(f"weight must have a row of taps for each of the {C} channels of x, but it has {len(weight)}.")
    sizes = (B, checked_length(x, weight), C, weight.shape[1])
    flags = (by_rows.learns(x, weight),)
    return tuned.implementation(OPERATION, x.device.type, computed(x), sizes, flags, config)(x, weight)


def checked_length(x: Tensor, weight: Tensor) -> int:
    """T for x: [B, T + K - 1, C] and weight: [.., K]. Raises ValueError if x is too short for one position."""
    T = length(x, weight)
    if T < 0:
        raise ValueError(f"x must hold {weight.shape[1] - 1} neighbours of a position, but has length {x.shape[1]}.")
    return T


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    B, T, C, K = (problem[name] for name in OPERATION.sizes)
    return tuple(by_rows.numbers(problem, seed, (B, T + K - 1, C), (C, K))), {}


def named(
    operation: str, small: list[tuple[int, ...]], large: list[tuple[int, ...]]
) -> Callable[[str], dict[str, Problem]]:
    """Problems with these sizes, `small` on a CPU and `large` on a GPU, with and without gradients."""

    def problems(device: str) -> dict[str, Problem]:
        shapes = large if device == "cuda" else small
        return registered(operation).named(device, {"x".join(map(str, each)): each for each in shapes})

    return problems


def fits(configuration: Configuration, problem: Problem) -> bool:
    """At most 32 numbers per thread and at least one, and no other number of programs if gradients are not needed."""
    numbers = int(configuration["positions"]) * int(configuration["channels"])
    threads = by_rows.WARP * int(configuration["num_warps"])
    idle = configuration["programs"] != EVERYWHERE["programs"] and not problem["gradients"]
    return threads <= numbers <= 32 * threads and not idle


def default(problem: Problem) -> str:
    """On a CPU an image if torch reads it in its layout, else blocks; `conv2d` with few taps or without gradients.

    Forward and backward at B 1, T 8192, float32, one core of a shared CPU, best of 5, microseconds of CPU time per
    position with `conv2d` and `image`: C 1024, K 3: 1.8 and 2.3, K 4: 19.0 and 2.7, K 7: 18.0 and 3.7; C 256, K 3: 0.6
    and 0.8, K 4: 1.9 and 0.8. With `conv1d`, at T 16384, C 1024, K 9: 31; `image` 4.6. At T 2048, C 512, K 9 in
    bfloat16 with `conv1d`, `conv2d`, `taps`, `image`: 8.7, 7.0, 6.0, 2.4; in float64: 17, 59, 8, 48.
    """
    if problem.device != "cpu":
        return "conv1d"
    if problem.dtype != "float32":
        return "taps"
    return "image" if problem["gradients"] and problem["taps"] > FEW else "conv2d"


def refuses_pictures(problem: Problem) -> str | None:
    """Why torch's convolution of images cannot run `problem`, or None.

    torch 2.13 did not return with 2 to 16 channels in bfloat16 and 15 or more taps: an AMD EPYC with AVX-512, one
    thread.
    """
    few = problem.device == "cpu" and problem.dtype == "bfloat16" and problem["channels"] <= 16
    return "torch's convolution of few channels in bfloat16 may never return" if few else None


def cached(problem: Problem) -> dict[str, Any]:
    """Blocks that fit the cache of a CPU."""
    return {"positions": by_rows.in_cache(problem, POSITIONS, problem["batch"] * problem["channels"], CACHED)}


BLOCKS = {"positions": POSITIONS}
IMPLEMENTATIONS = {
    "conv1d": Implementation("conv1d", _conv1d),
    "conv2d": Implementation("conv2d", _conv2d, refuses=refuses_pictures),
    "image": Implementation(
        "image",
        _image,
        BLOCKS,
        default={"positions": 256},
        suited=cached,
        refuses=refuses_pictures,
        files=("kernels.convolution.shifted",),
    ),
    "taps": Implementation(
        "taps", _taps, BLOCKS, default={"positions": 256}, suited=cached, files=("kernels.convolution.shifted",)
    ),
    "compiled": compiled(depthwise_convolution_reference),
    "triton": Implementation(
        "triton",
        _triton,
        TILES,
        (fits,),
        default=EVERYWHERE,
        refuses=by_rows.needs_gpu,
        files=("kernels.convolution.depthwise_convolution_triton",),
    ),
}
SIZES = ("batch", "positions", "channels", "taps")
OPERATION = register(
    Operation(
        name="depthwise_convolution",
        reference=depthwise_convolution_reference,
        implementations=IMPLEMENTATIONS,
        inputs=_inputs,
        problems=named(
            "depthwise_convolution",
            small=[(4, 512, 256, 3), (1, 2048, 512, 9)],
            large=[(8, 2048, 4096, 4), (4, 8192, 1024, 9), (8, 4096, 1024, 31)],
        ),
        default=default,
        sizes=SIZES,
        flags=("gradients",),
    )
)
