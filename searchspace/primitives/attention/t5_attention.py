"""T5 attention: each head adds a learned number to a score by how far apart query and key are, in coarsening buckets.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning", https://arxiv.org/abs/1910.10683, section 2.1:
softmax(q_i k_j + b_{bucket(j - i)}) v_j, without 1 / sqrt(D), b of [buckets, heads] one for all layers of a stack. Half
the buckets hold one distance each, the others ever more, growing as a power up to `max_distance`; what lies beyond
shares the last. Both ways each direction has half of all buckets, the future the second. The first e distances are
exact: n goes to e + floor(log(n / e) / log(max_distance / e) (N - e)), in whole numbers here, so nothing is rounded.
These are its positions; rotary positions and ALiBi do not reach it.
B batch, T time, H heads, D width of one head, N buckets of one direction, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.attention.attention import attention
from searchspace.checks import probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, common, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.kept_keys import attend_to_kept, count, remember
from searchspace.registry import primitive
from searchspace.sharing import shared


@dataclass(frozen=True, kw_only=True)
class T5AttentionConfig:
    """`buckets`: number of buckets of distances.
    `max_distance`: the distance from which all share the last bucket.
    `scale`: whether scores are divided by sqrt(D); as published they are not.
    `share`: whether all layers that look in the same direction share one table.
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
                f"max_distance must lie beyond the {self.one_way // 2} distances that have a bucket of their own, "
                f"but got max_distance={self.max_distance}, buckets={self.buckets}."
            )

    @property
    def one_way(self) -> int:
        """Buckets of one direction."""
        return self.buckets if self.causal else self.buckets // 2

    @property
    def table(self) -> tuple[str, bool, int, int]:
        """What layers must have in common to share a table."""
        return ("t5_attention", self.causal, self.buckets, self.heads)


@primitive("t5_attention", T5AttentionConfig)
class T5Attention(Primitive):
    """Attention with a bias by distance; streaming keeps the keys and values of all that was read."""

    def __init__(self, config: T5AttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.starts = _starts(config.one_way, config.max_distance)
        self.table = shared(config.table, self._table) if config.share else self._table()
        if not config.scale:  # the factor that the scores lack stands in the queries at the start, as in the paper
            with torch.no_grad():
                self.query_key_value.weight[: config.dim] *= (config.dim // config.heads) ** -0.5

    def _table(self) -> nn.Parameter:
        return nn.Parameter(torch.randn(self.config.buckets, self.config.heads) * self.config.dim**-0.5)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        config = self.config
        slot = context.slot(causal=config.causal)
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
        """[H, Tq, Tk]; the last query stands at the last key. One look-up a distance, and every query's row a part."""
        distance = torch.arange(1 - keys, queries, device=self.table.device)  # key - query
        line = self.table[self.buckets(distance)].T  # [H, Tq + Tk - 1]
        return line.unfold(1, keys, 1).flip(1)

    def buckets(self, distance: Tensor) -> Tensor:
        """The bucket of every distance key - query; causal, all of the future shares that of the query itself."""
        config = self.config
        starts = torch.tensor(self.starts, device=distance.device)
        if config.causal:
            return torch.bucketize((-distance).clamp(min=0), starts, right=True)
        return torch.bucketize(distance.abs(), starts, right=True) + (distance > 0) * config.one_way

    @classmethod
    def cost(cls, config: T5AttentionConfig, shape: Shape) -> Cost:
        """Scores are counted for every pair. The bias takes the plain path, which keeps the weights of every pair."""
        C, T, states = config.dim, shape.length, shape.batch * config.heads
        numbers = config.buckets * config.heads
        streamed = 2 * shape.rows * C * shape.element_bytes if config.causal else 0
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + matmul(T, C // config.heads, 2 * T, count=states)
            + kept(shape, 3 * shape.rows * C + states * T * T)
            + Cost(activation_bytes=8 * (2 * T - 1) + (T * T if config.causal else 0))  # buckets, and the mask
            + linear(shape, C, C, bias=config.bias)
            + (common(config.table, numbers) if config.share else Cost(parameters=numbers))
            + Cost(state_bytes=streamed)
        )


def _starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance of every bucket but the first: n is in bucket e + k if (n / e)^(N - e) >= (m / e)^k."""
    exact = buckets // 2
    rest = buckets - exact
    starts, n = list(range(1, exact + 1)), exact
    for k in range(1, rest):
        while n**rest * exact**k < exact**rest * max_distance**k:
            n += 1
        starts.append(n)
    return tuple(starts)
