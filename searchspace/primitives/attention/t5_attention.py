"""T5 attention: each head adds a learned bias that depends on the bucket of the distance between query and key.

Formula: softmax(q_i k_j + b_{bucket(j - i)}) v_j, without 1 / sqrt(D)

Raffel et al. 2020, "Exploring the Limits of Transfer Learning", https://arxiv.org/abs/1910.10683, section 2.1. The
table b has shape [buckets, heads] and is shared by all layers of a stack. Half of the buckets hold one distance each.
The others hold ranges that grow as a power, up to `max_distance`; all larger distances share the last bucket. A
bidirectional block uses half of all buckets for each direction, the second half for the future. The first e distances
are exact. A larger distance n is in bucket e + floor(log(n / e) / log(max_distance / e) (N - e)). This is computed in
integers, so nothing is rounded. Rotary positions and ALiBi have no effect on this block. B batch, T time, H heads, D
width of one head, N buckets of one direction, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.attention.attention import attention
from searchspace.checks import probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, common, kept, linear, matmul, state
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.kept_keys import KEPT, attend_to_kept, count, remember
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.sharing import shared


@dataclass(frozen=True, kw_only=True)
class T5AttentionConfig:
    """`buckets`: number of buckets of distances.
    `max_distance`: the distance from which on all distances share the last bucket.
    `scale`: whether scores are divided by sqrt(D); in the paper they are not.
    `share`: whether all layers that look in the same direction share one table.

    Raises ValueError if heads does not divide dim, the number of buckets does not suit the direction, the maximum
    distance has a bucket of its own, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    buckets: int = 32
    max_distance: int = 128
    scale: bool = False
    share: bool = True
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        if self.buckets < 2 or (not self.causal and (self.buckets < 4 or self.buckets % 2)):
            needed = "at least 2" if self.causal else "even and at least 4, because each direction takes half of them"
            raise ValueError(f"buckets must be {needed}, but got {self.buckets}.")
        if self.max_distance <= self.one_way // 2:
            raise ValueError(
                f"max_distance must be beyond the {self.one_way // 2} distances that have their own bucket, "
                f"but got max_distance={self.max_distance}, buckets={self.buckets}."
            )

    @property
    def one_way(self) -> int:
        """The number of buckets of one direction."""
        return self.buckets if self.causal else self.buckets // 2

    @property
    def table(self) -> tuple[str, bool, int, int]:
        """The key of the table: layers share a table if their keys are equal."""
        return ("t5_attention", self.causal, self.buckets, self.heads)


@primitive(
    "t5_attention",
    T5AttentionConfig,
    published=Published(code=("transformers",)),
)
class T5Attention(Primitive):
    """Attention with a bias by distance. Streaming keeps the keys and values of everything read so far."""

    def __init__(self, config: T5AttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.starts = _starts(config.one_way, config.max_distance)
        self.table = shared(config.table, self._table) if config.share else self._table()
        if not config.scale:  # the initial queries contain the factor 1 / sqrt(D) instead, as in the paper
            with torch.no_grad():
                self.query_key_value.weight[: config.dim] *= (config.dim // config.heads) ** -0.5

    def _table(self) -> nn.Parameter:
        return nn.Parameter(torch.randn(self.config.buckets, self.config.heads) * self.config.dim**-0.5)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        config = self.config
        slot = context.slot(self, causal=config.causal)
        q, k, v = (split(part, config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        dropout, scale = config.dropout if self.training else 0.0, None if config.scale else 1.0
        if slot is not None:
            parts = remember(slot, k, v)
            bias = self._bias(q.shape[2], count(parts))
            out = attend_to_kept(q, parts, bias=bias, dropout=dropout, scale=scale)
        else:
            bias, keys = self._bias(q.shape[2], k.shape[2]), context.padding
            out = attention(q, k, v, causal=config.causal, keys=keys, bias=bias, dropout=dropout, scale=scale)
        return self.output(merge(out))

    def _bias(self, queries: int, keys: int) -> Tensor:
        """[H, Tq, Tk], with the last query at the last key. Each distance is looked up once; every row is a view of the
        result.
        """
        distance = torch.arange(1 - keys, queries, device=self.table.device)  # key - query
        line = self.table[self.buckets(distance)].T  # [H, Tq + Tk - 1]
        return line.unfold(1, keys, 1).flip(1)

    def buckets(self, distance: Tensor) -> Tensor:
        """distance: key - query, any shape -> the bucket of each, same shape. If causal, all future distances share
        bucket 0.
        """
        config = self.config
        starts = torch.tensor(self.starts, device=distance.device)
        if config.causal:
            return torch.bucketize((-distance).clamp(min=0), starts, right=True)
        return torch.bucketize(distance.abs(), starts, right=True) + (distance > 0) * config.one_way

    @classmethod
    def states(cls, config: T5AttentionConfig) -> Mapping[str, str]:
        return KEPT

    @classmethod
    def cost(cls, config: T5AttentionConfig, shape: Shape) -> Cost:
        """Scores are counted for every pair. The bias uses the plain path, which keeps the weights of every pair."""
        C, T, states = config.dim, shape.length, shape.batch * config.heads
        numbers = config.buckets * config.heads
        streamed = 2 * T * C if config.causal else 0
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + matmul(T, C // config.heads, 2 * T, count=states)
            + kept(shape, 3 * shape.rows * C + states * T * T)
            + Cost(activation_bytes=8 * (2 * T - 1) + (T * T if config.causal else 0))  # the buckets and the mask
            + linear(shape, C, C, bias=config.bias)
            + (common(config.table, numbers) if config.share else Cost(parameters=numbers))
            + state(shape, 0, growing=streamed)
        )


def _starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance of every bucket except the first: n is in bucket e + k if (n / e)^(N - e) >= (m / e)^k."""
    exact = buckets // 2
    rest = buckets - exact
    starts, n = list(range(1, exact + 1)), exact
    for k in range(1, rest):
        while n**rest * exact**k < exact**rest * max_distance**k:
            n += 1
        starts.append(n)
    return tuple(starts)
