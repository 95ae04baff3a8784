"""Dynamic projection: chunks of a sequence are compressed into a few vectors per head, by weights computed from the
input.

Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, eq. 3. P is the softmax over the positions
of x W_P; the compressed keys and values are P^T K and P^T V. B batch, N chunks, L positions of a chunk, S slots, H
heads (head h owns the columns from h * S of W_P), D width of one head, C = H * D model width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.cost import Cost, Shape, kept, matmul

Norms = Literal["chained", "apart", "none"]


class DynamicProjection(nn.Module):
    """Compresses [B, N, L, X] to [B, N * S, X], where X holds one or more parts of width C."""

    def __init__(self, dim: int, heads: int, slots: int) -> None:
        super().__init__()
        self.dim, self.heads, self.slots = dim, heads, slots
        self.logits = nn.Linear(dim, heads * slots, bias=False)

    def forward(self, source: Tensor, logits: Tensor, *, padding: Tensor | None) -> Tensor:
        """source: [B, N, L, X], logits: [B, N, L, H * S] -> [B, N * S, X].

        padding: [B, N * L], True at real positions. The result of a chunk without real positions is arbitrary and must
        not be read.
        """
        B, N, L, X = source.shape
        scores = logits.unflatten(3, (self.heads, self.slots))
        if padding is not None:
            scores = scores.masked_fill(~padding.view(B, N, L, 1, 1), torch.finfo(scores.dtype).min)
        P = scores.softmax(2).permute(0, 1, 3, 4, 2)  # [B, N, H, S, L]
        many, D = X // self.dim, self.dim // self.heads
        parts = source.view(B, N, L, many, self.heads, D).permute(0, 1, 4, 2, 3, 5).flatten(4)
        out = (P @ parts).unflatten(4, (many, D))  # [B, N, H, S, many, D]
        return out.permute(0, 1, 3, 4, 2, 5).reshape(B, N * self.slots, X)


def projection_cost(dim: int, heads: int, slots: int, shape: Shape, *, chunks: int, length: int, width: int) -> Cost:
    """The cost of compressing `chunks` chunks of `length` positions, `width` elements each, of each sequence.

    The dim * heads * slots parameters are not included.
    """
    count = shape.batch * chunks
    return (
        matmul(shape.rows, dim, heads * slots)
        + matmul(slots, length, width // heads, count=count * heads)
        + kept(shape, count * length * (heads * slots + width))
    )


def normed(norm: nn.LayerNorm | None, keys_values: Tensor) -> Tensor:
    """keys_values: [B, .., 2 C or C] -> the same shape; each stretch of the norm's width is normalised by it.

    The width is that of the model, so that keys and values are normalised apart, or that of one head.
    """
    return keys_values if norm is None else norm(keys_values.unflatten(-1, (-1, *norm.normalized_shape))).flatten(-2)


def keys_and_values(both: Tensor, *, shared: bool) -> tuple[Tensor, Tensor]:
    """[B, T, 2 C] -> keys and values, [B, T, C] each; if they are `shared`, [B, T, C] -> twice the same."""
    return (both, both) if shared else both.tensor_split(2, dim=-1)  # type: ignore[return-value]


def norm_widths(dim: int, heads: int, *, per_head: bool) -> tuple[int, int]:
    """The width of a norm, and the number of stretches of this width in C."""
    return (dim // heads, heads) if per_head else (dim, 1)
