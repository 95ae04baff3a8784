"""Funnel attention: scores from content, distance and segment; the queries may come from a pooled sequence.

Formula: score_ij = [(q_i + u) . k_j + (q_i + v) . (R_{p_i - p_j} W_r) + (q_i + w) . e_{same(i, j)}] / sqrt(D)

Dai et al. 2020, "Funnel-Transformer", https://arxiv.org/abs/2006.03236, section 2.2 and appendix A. The relative scores
are those of Transformer-XL, in both directions. R_t = [sin(t f) | cos(t f)]. e has one vector for different segments
and one for equal segments. The class token has no position: the terms of distance and segment are zero in its row and
its column. Queries have no bias; keys, values and output do. The positions come from the context and must be evenly
spaced. If the context has a source, its keys are twice as dense as the queries. B batch, T queries, S keys (T without a
source), H heads, D width of one head, R distances, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from searchspace.checks import probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.distances import check_waves, columns, relative_shift, waves
from searchspace.primitives.attention.heads import Source, check_heads, merge, places, split, take_source
from searchspace.published import Published
from searchspace.registry import primitive

INITIAL_STD = 0.1  # of the biases and of the segments
POOLED = 2  # the distance between two queries, in keys, if the queries are pooled from a source


@dataclass(frozen=True, kw_only=True)
class FunnelAttentionConfig:
    """`separate_first`: whether the first position is a class token, outside of all distances.
    `segments`: whether the score depends on whether two positions are in the same segment.

    Raises ValueError if heads does not divide dim, dim is odd, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    separate_first: bool = True
    segments: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        check_waves(self.dim)
        probability(dropout=self.dropout)


@primitive(
    "funnel_attention",
    FunnelAttentionConfig,
    published=Published(code=("transformers",)),
)
class FunnelAttention(Primitive):
    """Bidirectional relative attention. If the context has a source, keys and values come from it."""

    capabilities = Capabilities(causal=False, streaming=False, source=True)

    def __init__(self, config: FunnelAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.key_value = nn.Linear(config.dim, 2 * config.dim)
        self.distance = nn.Linear(config.dim, config.dim, bias=False)  # W_r
        self.output = nn.Linear(config.dim, config.dim)
        head = (config.heads, 1, config.dim // config.heads)
        self.content_bias = nn.Parameter(INITIAL_STD * torch.randn(head))  # u
        self.distance_bias = nn.Parameter(INITIAL_STD * torch.randn(head))  # v
        if config.segments:
            self.segment_bias = nn.Parameter(INITIAL_STD * torch.randn(head))  # w
            self.segment = nn.Parameter(INITIAL_STD * torch.randn(2, config.heads, head[2]))  # e: different, equal

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if positions are not evenly spaced."""
        context.slot(self, causal=False)
        queries, step = places(x, context), POOLED
        source = take_source(context)
        if source is None:
            source, step = Source(x, queries, context.padding, context.get("segments")), 1
        _check_spacing(queries, source.positions, step)
        q = split(self.query(x), self.config.heads)
        k, v = (split(half, self.config.heads) for half in self.key_value(source.x).chunk(2, dim=2))
        relations = self._relations(q, queries, source, step, context)
        # One product that also adds, because each pass over all pairs costs noticeable time.
        content = self._scaled(q, self.content_bias).flatten(0, 1)
        scores = torch.baddbmm(relations.flatten(0, 1), content, k.transpose(2, 3).flatten(0, 1))
        return self.output(merge(self._read(scores.unflatten(0, q.shape[:2]), v, source.padding)))

    def _scaled(self, q: Tensor, bias: Tensor) -> Tensor:
        """(q + bias) / sqrt(D): [B, H, T, D]."""
        return (q + bias) * q.shape[3] ** -0.5

    def _relations(self, q: Tensor, queries: Tensor, source: Source, step: int, context: Context) -> Tensor:
        """The terms of distance and segment, [B, H, T, S]; zero for the class token."""
        T, S = len(queries), len(source.positions)
        unit = source.positions[1] - source.positions[0] if S > 1 else 1
        falling = torch.arange(columns(T, S, causal=False, step=step), device=q.device)
        distances = queries[-1] - source.positions[0] - unit * falling
        keys = self.distance(waves(distances, self.config.dim, q.dtype)).unflatten(1, (self.config.heads, -1))
        terms = relative_shift(torch.einsum("bhid,rhd->bhir", self._scaled(q, self.distance_bias), keys), S, step)
        if self.config.segments:
            terms = terms + self._segments(q, context.get("segments"), source.segments)
        if self.config.separate_first:
            first = (torch.arange(T, device=q.device) == 0)[:, None] | (torch.arange(S, device=q.device) == 0)
            terms = terms.masked_fill(first, 0)
        return terms

    def _segments(self, q: Tensor, queries: Tensor | None, keys: Tensor | None) -> Tensor:
        """The term of the segments: [B, H, T, S], or [B, H, T, 1] if no segments are given. All positions then share
        one.
        """
        different, equal = torch.einsum("bhid,nhd->nbhi", self._scaled(q, self.segment_bias), self.segment)
        if queries is None or keys is None:
            return equal[..., None]
        either = (queries < 0)[:, :, None] | (keys < 0)[:, None, :]
        same = (queries[:, :, None] == keys[:, None, :]) | either  # [B, T, S]
        return torch.where(same[:, None], equal[..., None], different[..., None])

    def _read(self, scores: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        """scores: [B, H, T, S], v: [B, H, S, D], keys: [B, S] -> [B, H, T, D]; zeros where no key is real."""
        if keys is not None:
            scores = scores.masked_fill(~keys[:, None, None, :], torch.finfo(scores.dtype).min)
        weights = torch.dropout(scores.softmax(3), self.config.dropout, self.training)
        out = weights.to(v.dtype) @ v
        return out if keys is None else out.masked_fill(~keys.any(1)[:, None, None, None], 0)

    @classmethod
    def cost(cls, config: FunnelAttentionConfig, shape: Shape) -> Cost:
        C, H, T, S = config.dim, config.heads, shape.length, shape.source or shape.length
        R = columns(T, S, causal=False, step=POOLED if shape.source else 1)
        states, read = shape.batch * H, shape.batch * S
        own = Cost(parameters=2 * C + C * C)  # u, v; W_r
        if config.segments:
            own += Cost(parameters=3 * C) + matmul(shape.length, C // H, 2, count=states) + kept(shape, shape.rows * C)
        return (
            own
            + linear(shape, C, C, bias=False)
            + linear(shape, C, 2 * C, rows=read)
            + matmul(T, C // H, 2 * S + R, count=states)
            + matmul(R, C, C, backward=1)  # the waves get no gradient
            + kept(shape, states * T * S + 2 * R * C + 2 * shape.rows * C + read * 2 * C)
            + linear(shape, C, C)
        )


def _check_spacing(queries: Tensor, keys: Tensor, step: int) -> None:
    """Raises ValueError if keys are not evenly spaced, or queries are not `step` keys apart."""
    if torch.compiler.is_compiling() or len(keys) < 2:
        return  # a compiled graph cannot read values
    unit = int(keys[1] - keys[0])
    if (keys.diff() != unit).any() or (queries.diff() != step * unit).any():
        raise ValueError(
            "funnel_attention needs evenly spaced positions. Positions of a pooled sequence must be twice as far apart "
            f"as those of its source, but got {queries.tolist()} that read {keys.tolist()}."
        )
