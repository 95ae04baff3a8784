"""What recurrent blocks share: one direction or two, the state while streaming, and padding that leaves it alone.

Both ways, after Schuster & Paliwal 1997, "Bidirectional Recurrent Neural Networks", https://doi.org/10.1109/78.650093:
a second recurrence with weights of its own reads from the end, each has half the width, and the halves stand side by
side, [forward; backward], as in Bahdanau et al. 2015. The state passes by padded positions unchanged, so the backward
one starts at the last real position, as with packed sequences.
B batch, T time, N directions, G numbers an input brings a direction, H width of a direction's state, C = N * H model
width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def directions(dim: int, *, causal: bool) -> tuple[int, int]:
    """(N, H) of a block of width `dim`. Raises ValueError when two directions do not share it evenly."""
    if causal:
        return 1, dim
    if dim % 2:
        raise ValueError(f"dim must be even, so that each of two directions has half of it, but got dim={dim}.")
    return 2, dim // 2


def by_time(inputs: Tensor, padding: Tensor | None, count: int) -> tuple[Tensor, Tensor | None]:
    """inputs: [B, T, N * G], padding: [B, T] -> [T, N, B, G] in float32 or wider, and mask [T, N, B, 1] or None.

    The second direction runs from the end.
    """
    wide = torch.promote_types(inputs.dtype, torch.float32)
    steps = inputs.to(wide).unflatten(2, (count, -1)).permute(1, 2, 0, 3)
    mask = None if padding is None else padding.mT[:, None, :, None].expand(-1, count, -1, -1)
    return _turned(steps), None if mask is None else _turned(mask)


def by_batch(states: Tensor, dtype: torch.dtype) -> Tensor:
    """[T, N, B, H] -> [B, T, N * H] in `dtype`, both directions in the order of time."""
    return _turned(states).permute(2, 0, 1, 3).flatten(2).to(dtype)


def _turned(steps: Tensor) -> Tensor:
    """[T, N, ...] with the second direction's time turned round."""
    return steps if steps.shape[1] == 1 else torch.stack([steps[:, 0], steps[:, 1].flip(0)], dim=1)
