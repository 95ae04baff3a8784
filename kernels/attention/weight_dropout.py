"""Dropout of attention weights by a seed: it depends only on the position of a weight, so all tilings give the same.

The weight of key j in row r (rows are counted over batch, heads and queries) gets 24 bits. They are mixed from the
seed, r and j by the finaliser of Appleby 2011, "MurmurHash3". The weight is dropped if they are below `dropped`.
Nothing is stored: the backward pass computes them again. The Triton kernels compute the same in `tiles_triton`.
"""

from __future__ import annotations

import torch
from torch import Tensor

ALL = 2**24  # the value of `dropped` for a share of one
GOLDEN = 0x9E3779B9  # the golden ratio in 32 bits: spreads neighbouring keys
FACTORS = (0x85EBCA6B, 0xC2B2AE35)


def dropped_of(share: float) -> int:
    """How many of `ALL` numbers drop a weight, for a share between 0 and 1."""
    return round(share * ALL)


def draw(dropout: float, device: torch.device) -> Tensor | None:
    """A seed [1] from torch's own generator; None if nothing is dropped."""
    return torch.randint(2**62, (1,), device=device) if dropout else None


def kept(seed: Tensor, rows: Tensor, keys: range, dropped: int, dtype: torch.dtype) -> Tensor:
    """The factors of the weights, [*rows, len(keys)]: 0 if dropped. seed: [1], rows: int64, any shape."""
    words = _mixed(_low(rows ^ seed)).add_(_low(rows >> 32)).bitwise_xor_(_low(seed >> 32))
    numbers = torch.arange(keys.start, keys.stop, device=rows.device, dtype=torch.int32) * _signed(GOLDEN)
    numbers = _mixed(_mixed(words)[..., None] + numbers)
    numbers >>= 8
    numbers &= ALL - 1
    return (numbers >= dropped).to(dtype).mul_(ALL / max(ALL - dropped, 1))


def _mixed(x: Tensor) -> Tensor:
    """Mix the bits of int32 numbers in place."""
    for shift, factor in zip((16, 13), FACTORS, strict=True):
        x ^= (x >> shift).bitwise_and_((1 << 32 - shift) - 1)
        x *= _signed(factor)
    x ^= (x >> 16).bitwise_and_((1 << 16) - 1)
    return x


def _low(x: Tensor) -> Tensor:
    return x.to(torch.int32)


def _signed(word: int) -> int:
    """The int32 with the same bits."""
    return word - 2**32 if word >= 2**31 else word
