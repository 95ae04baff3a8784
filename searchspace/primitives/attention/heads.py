"""What the attention blocks share: heads, their check, and the places of the positions in front of them.

B batch, T time, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from searchspace.contract import Context


def split(x: Tensor, heads: int) -> Tensor:
    """[B, T, H * D] -> [B, H, T, D]; head h owns the slice from h * D to (h + 1) * D."""
    B, T, width = x.shape
    return x.view(B, T, heads, width // heads).transpose(1, 2)


def merge(heads: Tensor) -> Tensor:
    """[B, H, T, D] -> [B, T, H * D]."""
    return heads.transpose(1, 2).flatten(2)


def places(x: Tensor, context: Context) -> Tensor:
    """The positions of x: [B, T, C] in its sequence, [T]; counted on while streaming, unless the context says them."""
    if context.positions is not None:
        return context.positions
    start = context.streams.length if context.streams else 0
    return torch.arange(start, start + x.shape[1], device=x.device)


def check_heads(dim: int, heads: int, key_value_heads: int | None = None) -> None:
    """Raise ValueError unless `dim` splits into `heads`, and these into groups that share keys and values."""
    if heads < 1 or dim % heads:
        raise ValueError(f"dim must be a multiple of heads, but got dim={dim}, heads={heads}.")
    if key_value_heads is not None and (key_value_heads < 1 or heads % key_value_heads):
        raise ValueError(
            f"heads must be a multiple of key_value_heads, but got heads={heads}, key_value_heads={key_value_heads}."
        )
