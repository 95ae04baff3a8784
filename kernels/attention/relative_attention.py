"""Softmax attention with learned vectors for the distance between query and key, up to a maximum distance.

Shaw et al. 2018, "Self-Attention with Relative Position Representations", https://arxiv.org/abs/1803.02155, eq. 3-5:
score_ij = q_i (k_j + a_{clip(j - i)}) / sqrt(D), out_i = sum_j w_ij (v_j + b_{clip(j - i)}), clip to [-c, c]. B batch,
H heads, Tq queries, Tk keys, D width of one head, c clip, 2 c + 1 rows of the tables a and b.

No tensor [Tq, Tk, D] with a vector for each pair is made. Each query is multiplied once with each row of a, and the
products are moved to the scores by distance. The weights of equal distances are summed before they are multiplied with
b.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.diagonals import by_distance, by_key


def relative_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_table: Tensor,
    value_table: Tensor | None,
    *,
    causal: bool = False,
    keys: Tensor | None = None,
) -> Tensor:
    """The definition, with a vector for each pair; arguments as for `relative_attention`."""
    Tq, Tk, clip = q.shape[2], k.shape[2], len(key_table) // 2
    distance = torch.arange(Tk, device=q.device) - torch.arange(Tk - Tq, Tk, device=q.device)[:, None]
    row = distance.clamp(-clip, clip) + clip
    scores = torch.einsum("bhid,bhijd->bhij", q, k[:, :, None] + key_table[row]) / math.sqrt(q.shape[3])
    allowed = torch.ones_like(scores, dtype=torch.bool) if keys is None else keys[:, None, None, :].expand_as(scores)
    allowed = allowed & (distance <= 0) if causal else allowed
    weights = (scores - scores.amax(3, keepdim=True)).exp() * allowed
    total = weights.sum(3, keepdim=True)
    values = v[:, :, None] if value_table is None else v[:, :, None] + value_table[row]
    weights = weights / torch.where(total > 0, total, 1)
    return torch.einsum("bhij,bhijd->bhid", weights, values.expand(-1, -1, Tq, -1, -1))


def relative_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_table: Tensor,
    value_table: Tensor | None,
    *,
    causal: bool = False,
    keys: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, H, Tk, D], tables [2 c + 1, D] from distance -c to c -> [B, H, Tq, D].

    The last query is at the position of the last key. keys: [B, Tk], True where a key may be read; a query without any
    key gives zeros. If causal, the half of the tables for the future is not read.
    """
    Tq, Tk, clip = q.shape[2], k.shape[2], len(key_table) // 2
    rows = clip + 1 if causal else 2 * clip + 1
    distance = torch.arange(Tk, device=q.device) - torch.arange(Tk - Tq, Tk, device=q.device)[:, None]  # [Tq, Tk]
    q = q / math.sqrt(q.shape[3])
    scores = q @ k.transpose(2, 3) + _spread(q @ key_table[:rows].T, distance, clip)
    allowed = distance <= 0 if causal else None
    if keys is not None:
        real = keys[:, None, None, :]
        allowed = real if allowed is None else real & allowed
    if allowed is not None:  # finite, so that a row without any key is not NaN; its result is dropped below
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = F.dropout(scores.softmax(3), dropout)
    out = weights @ v
    if value_table is not None:
        out = out + _gathered(weights, distance, clip, rows) @ value_table[:rows]
    return out if keys is None or allowed is None else out.masked_fill(~allowed.any(3, keepdim=True), 0)


def _spread(products: Tensor, distance: Tensor, clip: int) -> Tensor:
    """The products of each query with the rows of a table, [B, H, Tq, c + 1 or 2 c + 1] -> by key, [B, H, Tq, Tk]."""
    (Tq, Tk), ahead = distance.shape, products.shape[3] - 1 - clip
    near = by_key(products, Tq + clip + ahead)
    near = F.pad(near, (Tk - Tq - clip, -ahead))
    near = torch.where(distance <= -clip, products[..., :1], near)
    return torch.where(distance >= clip, products[..., -1:], near) if ahead else near


def _gathered(weights: Tensor, distance: Tensor, clip: int, rows: int) -> Tensor:
    """The weights [B, H, Tq, Tk] -> by distance, summed beyond the clip: [B, H, Tq, rows]."""
    (Tq, Tk), ahead = distance.shape, rows - 1 - clip
    near = by_distance(F.pad(weights, (clip - (Tk - Tq), ahead)), rows)
    near = near[..., 1:-1] if ahead else near[..., 1:]
    beyond = [weights.masked_fill(distance < clip, 0).sum(3, keepdim=True)] if ahead else []
    # The remainder of the total: cheaper than masking all keys once more.
    behind = weights.sum(3, keepdim=True) - near.sum(3, keepdim=True) - sum(beyond)
    return torch.cat([behind, near, *beyond], dim=3)
