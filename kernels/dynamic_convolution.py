"""Dynamic convolution over time: every position brings taps of its own for every head of channels.

Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions", https://arxiv.org/abs/1901.10430,
section 4: out_{i,h,d} = sum_k taps_{i,h,k} x_{i+k,h,d}.
B batch, T time, H heads, D channels of a head, K taps, N chunks of P positions.

P positions read P + K - 1 neighbours, so their taps are a band in a [P, P + K - 1] matrix, and a product does what
would be K passes over x. Memory grows as T (P + K): there is no [T, T] matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# Positions. Forward and backward at B 4, T 512, H 8, D 32, float32, one core of a shared CPU, best of 7, with 8, 16,
# 32, 64, 128: K 31: 22.6, 15.7, 12.5, 13.0, 17.2 ms (31.2 tap by tap); K 7: 15.3, 10.8, 9.2, 10.6, 14.6 ms (7.0).
CHUNK = 32


def dynamic_convolution_reference(x: Tensor, taps: Tensor) -> Tensor:
    """The definition, tap by tap in float32 or wider; arguments as for `dynamic_convolution`."""
    wide = torch.promote_types(x.dtype, torch.float32)
    B, T, H, K = taps.shape
    heads = x.to(wide).view(B, T + K - 1, H, -1)
    each = [taps[..., k, None].to(wide) * heads[:, k : k + T] for k in range(K)]  # each [B, T, H, D]
    return torch.stack(each).sum(0).view(B, T, -1).to(x.dtype)


def dynamic_convolution(x: Tensor, taps: Tensor) -> Tensor:
    """x: [B, T + K - 1, H * D], the padding already in front and behind; taps: [B, T, H, K] -> [B, T, H * D]."""
    B, T, H, K = taps.shape
    N, P = chunks(T)
    x = F.pad(x, (0, 0, 0, N * P - T)).unfold(1, P + K - 1, P)  # [B, N, H * D, P + K - 1]
    x = x.unflatten(2, (H, -1)).transpose(3, 4)  # [B, N, H, P + K - 1, D]
    taps = F.pad(taps, (0, 0, 0, 0, 0, N * P - T)).unflatten(1, (N, P)).transpose(2, 3)  # [B, N, H, P, K]
    return (_band(taps) @ x).transpose(2, 3).reshape(B, N * P, -1)[:, :T]


def _band(taps: Tensor) -> Tensor:
    """[..., P, K] -> [..., P, P + K - 1], row i moved i places to the right, zeros elsewhere.

    Rows padded to P + K and read again as rows of P + K - 1 move by one place each.
    """
    P, K = taps.shape[-2:]
    flat = F.pad(taps, (0, P)).flatten(-2)
    return flat[..., : P * (P + K - 1)].unflatten(-1, (P, P + K - 1))


def chunks(length: int) -> tuple[int, int]:
    """How many chunks of how many positions a pass over `length` positions takes."""
    positions = min(length, CHUNK)
    return -(-length // positions), positions
