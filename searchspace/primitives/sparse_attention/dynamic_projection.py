"""Dynamic projection: stretches of a sequence compressed into a few vectors a head, by weights read from the sequence.

Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, eq. 3: P = softmax over the positions of
x W_P, the compressed P^T K and P^T V. B batch, N stretches, L positions of one, S slots, H heads (head h owns the
columns from h * S of W_P), D width of one head, C = H * D model width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.cost import Cost, Shape, kept, matmul

Norms = Literal["chained", "apart", "none"]


class DynamicProjection(nn.Module):
    """[B, N, L, X] -> [B, N * S, X], where X holds one or more parts of width C."""

    def __init__(self, dim: int, heads: int, slots: int) -> None:
        super().__init__()
        self.dim, self.heads, self.slots = dim, heads, slots
        self.logits = nn.Linear(dim, heads * slots, bias=False)

    def forward(self, source: Tensor, logits: Tensor, *, padding: Tensor | None) -> Tensor:
        """logits: [B, N, L, H * S]. padding: [B, N * L], True at real positions; a stretch without any gives what
        nobody may read."""
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
    """The cost of compressing `chunks` stretches of `length` positions and `width` numbers of each sequence.

    Without the parameters, of which there are dim * heads * slots.
    """
    count = shape.batch * chunks
    return (
        matmul(shape.rows, dim, heads * slots)
        + matmul(slots, length, width // heads, count=count * heads)
        + kept(shape, count * length * (heads * slots + width))
    )


def normed(norm: nn.Module | None, keys_values: Tensor) -> Tensor:
    """[B, .., 2 C], the keys and the values each by the same norm over the whole width."""
    return keys_values if norm is None else norm(keys_values.unflatten(-1, (2, -1))).flatten(-2)
