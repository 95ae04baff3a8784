"""Lightweight convolution over time: all positions, and all channels of a head, share their taps.

Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions", https://arxiv.org/abs/1901.10430,
section 3: out_{i,h,d} = sum_k taps_{h,k} x_{i+k,h,d}; the caller computes the softmax of the taps. B batch, T time, H
heads, D channels of a head, C = H * D, K taps, N chunks of P positions.

It is a depthwise convolution and has its implementations, plus `banded`: a product with a [P, P + K - 1] matrix in
which the taps of a head are a band, one matrix for all chunks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.attention.diagonals import by_key
from kernels.convolution.depthwise_convolution import (
    IMPLEMENTATIONS,
    checked_length,
    default,
    depthwise_convolution_reference,
    length,
    named,
)
from kernels.convolution.dynamic_convolution import BANDS, chunks, windows
from kernels.dispatch import tuned
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows


def _banded(x: Tensor, taps: Tensor, *, positions: int) -> Tensor:
    T, (H, K) = length(x, taps), taps.shape
    if not T:
        return depthwise_convolution_reference(x, taps)
    N, P = chunks(T, positions)
    band = by_key(taps[:, None].expand(H, P, K), P + K - 1)
    return torch.einsum("hpw,bnhwd->bnphd", band, windows(x, H, K, N, P)).flatten(3).flatten(1, 2)[:, :T]


def lightweight_convolution(x: Tensor, taps: Tensor, *, config: Choice | None = None) -> Tensor:
    """x: [B, T + K - 1, H * D], already padded at both ends; taps: [H, K] -> [B, T, H * D].

    Without `config` the tuned choice for this problem runs. Raises ValueError if x and taps do not fit together.
    """
    (B, _, C), (H, K) = x.shape, taps.shape
    if C % max(H, 1):
        raise ValueError(f"the channels of x must be a multiple of the heads of taps, but x has {C}, taps {H}.")
    sizes, flags = (B, checked_length(x, taps), C, H, K), (by_rows.learns(x, taps),)
    return tuned.implementation(OPERATION, x.device.type, computed(x), sizes, flags, config)(x, taps)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    B, T, C, H, K = (problem[name] for name in SIZES)
    return tuple(by_rows.numbers(problem, seed, (B, T + K - 1, C), (H, K))), {}


SIZES = ("batch", "positions", "channels", "heads", "taps")
OPERATION = register(
    Operation(
        name="lightweight_convolution",
        reference=depthwise_convolution_reference,
        implementations={
            **IMPLEMENTATIONS,
            "banded": Implementation("banded", _banded, **BANDS),
        },
        inputs=_inputs,
        problems=named(
            "lightweight_convolution",
            small=[(4, 512, 256, 4, 7), (1, 2048, 512, 8, 31)],
            large=[(8, 2048, 1024, 16, 7), (8, 4096, 1024, 16, 31)],
        ),
        default=default,
        sizes=SIZES,
        flags=("gradients",),
    )
)
