"""Transformer-XL attention: scores from content and distance, and helpers that cut a sequence into segments.

Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, section 3.3: score_ij = [(q_i + u) . k_j + (q_i +
v) . (W_r R_(i-j))] / sqrt(D), then a softmax over the keys that may be read. B batch, T time, N segments of S
positions, M positions of memory, G groups of queries with their own keys (the segments of all sequences), n queries and
K keys of a group, R distances, H heads, D width of one head, C = H * D.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.rowwise.remembered_linear import remembered_linear
from searchspace.contract import Unnormed
from searchspace.cost import Cost, Shape, common, kept, matmul
from searchspace.primitives.attention.distances import columns, falling, relative_shift, waves
from searchspace.sharing import shared

INITIAL_STD = 0.02  # of u and v, as in the released code
# Number of scores computed at a time, so that they stay in the CPU cache. B 4, T 4096, H 4, D 32, segment and memory
# 128, float32, one core: evaluation takes 134 ms, 152 ms with four times as many, 295 ms with all at once; training
# takes 407, 413 and 634 ms.
CPU_SCORES = 2**18


class RelativeScores(nn.Module):
    """The parameters u, v and W_r of one block. With `share`, all blocks of a model have the same u and v.

    learned: number of distances that have a learned vector each, in place of W_r R; then there are no u and v, and
    blocks share the vectors. None for waves.
    """

    def __init__(self, dim: int, heads: int, *, clamp: int | None, share: bool, learned: int | None = None) -> None:
        super().__init__()
        self.heads, self.clamp, self.table = heads, clamp, None
        self.content_bias = self.position_bias = self.distance = None
        self._table: Tensor | None = None
        if learned is not None:

            def table() -> nn.Parameter:
                return nn.Parameter(torch.zeros(heads, learned, dim // heads))

            self.table = shared(_table_key(dim, heads, learned), table) if share else table()  # the farthest first
            return

        def bias() -> nn.Parameter:
            return nn.Parameter(INITIAL_STD * torch.randn(heads, 1, dim // heads))

        self.content_bias = shared(_key("content", dim, heads), bias) if share else bias()  # u
        self.position_bias = shared(_key("position", dim, heads), bias) if share else bias()  # v
        self.distance = nn.Linear(dim, dim, bias=False)  # W_r

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, r: Tensor, allowed: Tensor | None, *, dropout: float, may_be_empty: bool
    ) -> Tensor:
        """q: [G, H, n, D], k and v: [G, H, K, D], r: [H, D, R] of `distances` -> [G, H, n, D].

        allowed: [G or 1, 1, n, K], True where a query may read a key; None if every query reads every key. It may cover
        only the newest keys if every query reads all keys before these. may_be_empty: whether a query may have no key
        at all; it then gives zeros, and `allowed` must cover all keys.
        """
        if q.device.type != "cpu" or torch.compiler.is_compiling():
            return self._read(q, k, v, r, allowed, dropout, may_be_empty)
        G, H, n, _ = q.shape
        together = max(1, CPU_SCORES // (H * n * k.shape[2]))
        fits = together >= G and (torch.is_grad_enabled() or H * n * k.shape[2] <= CPU_SCORES)
        if fits:
            return self._read(q, k, v, r, allowed, dropout, may_be_empty)
        masks = [None] * G if allowed is None else allowed.expand(G, -1, -1, -1).split(together)
        groups = zip(q.split(together), k.split(together), v.split(together), masks, strict=False)
        return torch.cat([self._by_heads(q, k, v, r, mask, dropout, may_be_empty) for q, k, v, mask in groups])

    def _by_heads(
        self, q: Tensor, k: Tensor, v: Tensor, r: Tensor, allowed: Tensor | None, dropout: float, may_be_empty: bool
    ) -> Tensor:
        """The same as `_read`. Without gradients it computes only a few heads at a time, so that the scores stay in the
        cache.

        A segment of 128, memory 3800, 10 heads of 41, float32, one core: 33 ms per layer, 68 ms with all heads at once.
        """
        together = max(1, CPU_SCORES // (q.shape[2] * k.shape[2]))
        if torch.is_grad_enabled() or together >= self.heads:
            return self._read(q, k, v, r, allowed, dropout, may_be_empty)
        outs = []
        for first in range(0, self.heads, together):
            heads = slice(first, first + together)
            parts = q[:, heads], k[:, heads], v[:, heads], r[heads]
            outs.append(self._read(*parts, allowed, dropout, may_be_empty, heads))
        return torch.cat(outs, dim=1)

    def _read(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        r: Tensor,
        allowed: Tensor | None,
        dropout: float,
        may_be_empty: bool,
        heads: slice = slice(None),
    ) -> Tensor:
        (G, H, n, D), K = q.shape, k.shape[2]
        scale = D**-0.5
        heads_first = _added(self.position_bias, heads, q, scale).transpose(0, 1)  # [H, G, n, D]
        by_distance = torch.bmm(heads_first.flatten(1, 2), r).view(H, G, n, -1)
        scores = relative_shift(by_distance, K).transpose(0, 1)  # [G, H, n, K]
        content = _added(self.content_bias, heads, q, scale)
        # A segment of 128, memory 3800, 10 heads of 41, float32, one core: adding the content scores inside the matrix
        # product saves 3.1 ms, and multiplying values by weights in this order, with long rows, saves 1.6 ms. With one
        # query or with gradients both are slower.
        eager = not torch.is_grad_enabled() and not torch.compiler.is_compiling()
        lone = eager and G == 1 and n > 1
        if lone:
            one = scores[0]
            torch.baddbmm(one, content[0].to(k.dtype), k[0].transpose(1, 2), out=one)
        else:
            # In place is safe: the backward pass of a product needs its factors, not its result.
            scores = (content @ k.transpose(2, 3)).add_(scores)
        if allowed is not None:
            late = scores if allowed.shape[3] == K else scores[..., K - allowed.shape[3] :]
            # A finite minimum, so that a row without any key has no NaN in its values or its gradient.
            late.masked_fill_(~allowed, torch.finfo(scores.dtype).min)
        weights = F.dropout(scores.softmax(3), dropout).to(v.dtype)
        out = (v.transpose(2, 3) @ weights.transpose(2, 3)).transpose(2, 3) if lone else weights @ v
        if allowed is not None and may_be_empty:
            out = out.masked_fill(~allowed.any(dim=3, keepdim=True), 0)
        return out

    def distances(self, queries: int, keys: int, like: Tensor, *, causal: bool = True) -> Tensor:
        """W_r R for the distances of a group whose last query is at its last key: [H, D, R], falling."""
        return self._projected(keys - 1, columns(queries, keys, causal=causal), like.device)

    def remembered_distances(self, _queries: int, keys: int, like: Tensor, *, most: int | None, fresh: bool) -> Tensor:
        """The same for streaming, from a cached table: [H, D, keys + 1]. Groups are causal and have at most `most`
        keys.

        The table is rebuilt if `fresh` is set (the stream rebuilds its keys; at least at its start) or if it is too
        short.
        """
        most = most or 1 << keys.bit_length()
        if torch.compiler.is_compiling():
            return self._projected(keys - 1, keys + 1, like.device)
        table = self._table = None if fresh else self._table
        if torch.is_grad_enabled():
            return self._projected(keys - 1, keys + 1, like.device)
        if table is None or table.shape[2] <= keys or (table.dtype, table.device) != (like.dtype, like.device):
            table = self._table = self._projected(max(most, keys) - 1, max(most, keys) + 1, like.device).contiguous()
        return table[:, :, table.shape[2] - keys - 1 :]

    def _projected(self, largest: int, count: int, device: torch.device) -> Tensor:
        distances = falling(largest, count, device)
        if self.table is not None:  # a distance below 0, which the shift needs, is never read
            last = self.table.shape[1] - 1
            return self.table[:, last - distances.clamp(min=0)].transpose(1, 2)
        assert self.distance is not None
        if self.clamp is not None:
            distances = distances.clamp(-self.clamp, self.clamp)
        r = self.distance(waves(distances, self.distance.in_features, self.distance.weight.dtype))
        return r.unflatten(1, (self.heads, -1)).permute(1, 2, 0)


def _key(bias: str, dim: int, heads: int) -> Hashable:
    return ("relative_scores", bias, dim, heads)


def _table_key(dim: int, heads: int, learned: int) -> Hashable:
    return ("relative_scores", "table", dim, heads, learned)


def _added(bias: Tensor | None, heads: slice, q: Tensor, scale: float) -> Tensor:
    """(q + bias) * scale; q: [G, H, n, D], bias: [all heads, 1, D] or None -> [G, H, n, D]."""
    return q * scale if bias is None else torch.add(bias[heads] * scale, q, alpha=scale)


def remembered_twice(entered: Unnormed, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of the input of a block as they are read now, and as a memory without gradients to the input.

    entered: the input, and what a norm made it from: [B, T, C]. The norm gets a gradient from the memory too. weight:
    [2 C, C] -> [B, T, 2 C] each.
    """
    behind = None
    if entered.module is not None and torch.is_grad_enabled():
        behind = entered.norm(entered.x.detach())
    return remembered_linear(entered.normed, weight, behind)


def parameters_cost(dim: int, heads: int, *, share: bool, learned: int | None = None) -> Cost:
    """The parameters u, v and W_r, or a table of `learned` distances."""
    if learned is not None:
        return common(_table_key(dim, heads, learned), learned * dim) if share else Cost(parameters=learned * dim)
    biases = Cost(parameters=2 * dim)
    if share:
        biases = common(_key("content", dim, heads), dim) + common(_key("position", dim, heads), dim)
    return biases + Cost(parameters=dim * dim)


def reading_cost(
    dim: int,
    heads: int,
    shape: Shape,
    *,
    groups: int,
    queries: int,
    keys: int,
    causal: bool = True,
    learned: int | None = None,
) -> Cost:
    """The cost of one call of `RelativeScores`, distances included. groups: number of groups with `queries` and `keys`
    each. learned: number of learned vectors, or None.
    """
    R, D = columns(queries, keys, causal=causal), dim // heads
    rows, pairs = groups * queries, groups * queries * keys
    vectors = kept(shape, R * dim)
    if learned is None:
        vectors += matmul(R, dim, dim, backward=1) + kept(shape, R * dim)  # the waves and their projection
    return (
        vectors
        + matmul(rows, D, R, count=heads)
        + matmul(queries, D, 2 * keys, count=groups * heads)
        + kept(shape, 2 * rows * dim + heads * pairs)  # queries with each bias; weights
        + Cost(activation_bytes=pairs)  # the mask
    )


def norm_learns_cost(dim: int, shape: Shape) -> Cost:
    """The gradient that a norm before the block gets from the keys and values of a memory: one more product."""
    return Cost(training_flops=matmul(shape.rows, dim, 2 * dim).flops)


def segments(T: int, segment: int) -> int:
    """The number of segments of length `segment` that T positions need."""
    return -(-T // segment)


def newest(y: Tensor, size: int, step: int, count: int) -> Tensor:
    """The last `size` entries before each of `count` places, which are `step` entries apart; the last place is the end
    of y.

    y: [B, H, L, D] -> [B, count, H, size, D], zeros before the start of y.
    """
    B, H, L, D = y.shape
    if size == 0:
        return y.new_zeros(B, count, H, 0, D)
    padded = F.pad(y, (0, 0, size + (count - 1) * step - L, 0))
    return padded.unfold(2, size, step).permute(0, 2, 1, 4, 3)


def cut(y: Tensor, segment: int) -> Tensor:
    """y: [B, H, T, D] -> [B, N, H, S, D], zeros after the end."""
    N = segments(y.shape[2], segment)
    return F.pad(y, (0, 0, 0, N * segment - y.shape[2])).unflatten(2, (N, segment)).transpose(1, 2)


def windows(present: Tensor, past: Tensor, remembered: Tensor, *, segment: int, memory: int) -> Tensor:
    """The keys (or values) that each segment may read, the newest of the memory and then its own: [B * N, H, K, D].

    present: [B, H, T, D]. past: [B, H, p, D] with p <= memory, the positions before. remembered: like present, but as
    later segments see it in their memory. K = memory + segment; entries without a position are zero.
    """
    N = segments(present.shape[2], segment)
    before = torch.cat([past, remembered[:, :, : (N - 1) * segment]], dim=2)
    return torch.cat([newest(before, memory, segment, N), cut(present, segment)], dim=3).flatten(0, 1)


def reach_back(queries: int, keys: int, device: torch.device) -> Tensor:
    """How far each key is behind each query if the last query is at the last key: [n, K]."""
    return torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
