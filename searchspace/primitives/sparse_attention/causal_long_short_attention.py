"""Causal long-short attention: each position reads the last positions and a few vectors of every earlier chunk.

Formula: softmax([near, far]) [V; Vc], near = (q s + u) . k + (q s + v) . (W R_d), far = (q s) . kc + (q s) . (W' R_t),
Kc = LN_c(P^T x Wk), P = softmax(x W_P)

Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, sections 3.3 and 3.4. The sequence is cut
into chunks of L positions. Each chunk is compressed into S vectors per head; P is the softmax over its positions. The
paper also has a bias of W_P, but the softmax cancels it. A query reads, under one softmax, the last W positions
including its own, and the vectors of earlier chunks. s = 1 / sqrt(D). R are the waves of the relative positions of
Transformer-XL, https://arxiv.org/abs/1901.02860. d is the distance in positions; t counts the vectors backwards from 0.

`chunks` limits how many earlier chunks a query reads. null reads all of them, as in the paper; the cost then grows as T
* T / L. `norms` are two LayerNorms over the full width, each applied to keys and values alike: "apart" Kc = LN_c(P^T x
Wk), as in the released code; "chained" Kc = LN_c(P^T LN_w(x Wk)), as in its bidirectional block; "none". `compress:
projected` compresses keys and values, as in the paper. `compress: hidden` compresses the input, one slice per head, and
projects the result. The released code does so only for chunks of earlier segments. Here the option applies to all
chunks, so that the results do not depend on the lengths of the pieces in streaming. B batch, T time, N chunks, H heads,
D width of one head, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.sparse_attention.banded_attention import Band, Reading, band, banded_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.distances import check_waves, falling, waves
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.sparse_attention.dynamic_projection import (
    DynamicProjection,
    Norms,
    normed,
    projection_cost,
)
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class CausalLongShortAttentionConfig:
    """`window`: W, number of last positions that a query reads.
    `chunk`: L, number of positions in a chunk.
    `slots`: S, number of vectors per head that a chunk is compressed into.
    `chunks`: number of earlier chunks that a query reads; null reads all.
    `norms`: the two LayerNorms of keys and values: as in the released code (apart), one after the other (chained),
    none.
    `compress`: whether projected keys and values are compressed, or the input before projection (hidden).

    Raises ValueError if heads does not divide dim, dim is odd, the window is shorter than a chunk, another number is
    below 1, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(True)
    heads: int = 4
    window: int = 32
    chunk: int = 4
    slots: int = 1
    chunks: int | None = 16
    norms: Norms = "apart"
    compress: Literal["projected", "hidden"] = "projected"
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        check_waves(self.dim)
        probability(dropout=self.dropout)
        at_least(1, chunk=self.chunk, slots=self.slots, chunks=self.chunks)
        if self.window < self.chunk:
            raise ValueError(
                "window must be at least chunk, because otherwise some positions of a chunk are never read, "
                f"but got window={self.window}, chunk={self.chunk}."
            )

    @property
    def source_width(self) -> int:
        """The width of a position's elements that are compressed."""
        return self.dim if self.compress == "hidden" else 2 * self.dim

    def near(self, queries: int, before: int = 0) -> Band:
        """The window of `queries` queries with `before` positions before them."""
        found = band(queries, before=before, reach=self.window)
        assert found is not None
        return found

    def far(self, queries: int, chunks: int = 0, past: int = 0) -> Band | None:
        """The vectors that the queries read. `chunks` are complete before the first query's chunk, which has `past`
        positions.
        """
        # The newest vectors that a query may read are those of the chunk before its own.
        return band(queries, before=chunks - 1, reach=self.chunks, step=self.chunk, slots=self.slots, past=past)


@primitive("causal_long_short_attention", CausalLongShortAttentionConfig)
class CausalLongShortAttention(Primitive):
    """Streaming keeps the keys and values of the window, the vectors that may be read, and the incomplete chunk."""

    capabilities = Capabilities(bidirectional=False)

    def __init__(self, config: CausalLongShortAttentionConfig) -> None:
        super().__init__()
        self.config = config
        C, H = config.dim, config.heads
        self.query = nn.Linear(C, C, bias=config.bias)
        self.key_value = nn.Linear(C, 2 * C, bias=config.bias)
        self.projection = DynamicProjection(C, H, config.slots)
        self.near_norm, self.far_norm = (None if config.norms == "none" else nn.LayerNorm(C) for _ in range(2))
        self.near_position = nn.Linear(C, C, bias=False)  # W
        self.far_position = nn.Linear(C, C, bias=False)  # W'
        self.content_bias = nn.Parameter(torch.zeros(H, 1, C // H))  # u
        self.position_bias = nn.Parameter(torch.zeros(H, 1, C // H))  # v
        self.output = nn.Linear(C, C, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        config, T = self.config, x.shape[1]
        slot = context.slot()
        past, chunks = self._read_before(slot)
        q = split(self.query(x), config.heads) * (config.dim // config.heads) ** -0.5
        both = self.key_value(x)
        near = normed(self.near_norm, both)
        far, real = self._far(x, near if config.norms == "chained" else both, context.padding, slot)
        if slot is not None:
            near = self._remembered(slot, "near", near, config.window - 1)
        window, vectors = config.near(T, near.shape[1] - T), config.far(T, chunks, past)
        k, v = (split(half, config.heads) for half in near.chunk(2, dim=2))
        r = self._distances(self.near_position, window, x)
        readings = [Reading(window, q + self.content_bias, q + self.position_bias, k, v, r, context.padding)]
        if vectors is not None:
            k, v = (split(half, config.heads) for half in far.chunk(2, dim=2))
            r = self._distances(self.far_position, vectors, x)
            readings.append(Reading(vectors, q, q, k, v, r, real))
        dropout = config.dropout if self.training else 0.0
        return self.output(merge(banded_attention(readings, queries=context.padding, dropout=dropout)))

    def _read_before(self, slot: dict[str, Tensor] | None) -> tuple[int, int]:
        """The number of positions in the incomplete chunk, and of complete chunks that are kept."""
        if not slot:
            return 0, 0
        return slot["open"].shape[1], slot["far"].shape[1] // self.config.slots

    def _far(
        self, x: Tensor, keys_values: Tensor, padding: Tensor | None, slot: dict[str, Tensor] | None
    ) -> tuple[Tensor, Tensor | None]:
        """The vectors of the complete chunks, [B, N * S, 2 C], and a mask of those from a real position, [B, N * S].

        In streaming, they include the vectors kept earlier. Otherwise the last chunk is left out, because no position
        follows it.
        """
        config, length = self.config, x.shape[1] - (slot is None)
        if slot is None and length < config.chunk:
            return x.new_zeros(x.shape[0], 0, 2 * config.dim), None
        source = x if config.compress == "hidden" else keys_values
        material = torch.cat([source, self.projection.logits(x)], dim=2)
        if slot is not None:
            material = torch.cat([slot["open"], material], dim=1) if slot else material
            length = material.shape[1]
            slot["open"] = material[:, length - length % config.chunk :].clone()
        chunks = length // config.chunk
        full = chunks * config.chunk
        real = None if padding is None else padding[:, :full]
        far = self._vectors(material[:, :full].unflatten(1, (chunks, config.chunk)), real)
        if slot is not None:
            far = self._remembered(slot, "far", far, config.chunks and config.chunks * config.slots)
        if real is not None:
            real = real.unflatten(1, (chunks, config.chunk)).any(2).repeat_interleave(config.slots, 1)
        return far, real

    def _vectors(self, material: Tensor, padding: Tensor | None) -> Tensor:
        """material: [B, N, L, X + H * S], the elements to compress and the logits of P -> [B, N * S, 2 C]."""
        source, logits = material.tensor_split([self.config.source_width], dim=3)
        far = self.projection(source, logits, padding=padding)
        if self.config.compress == "hidden":
            far = self.key_value(far)
            far = normed(self.near_norm, far) if self.config.norms == "chained" else far
        return normed(self.far_norm, far)

    def _remembered(self, slot: dict[str, Tensor], name: str, new: Tensor, most: int | None) -> Tensor:
        """The tensor kept as `name` followed by `new`. The slot keeps the last `most` entries."""
        whole = torch.cat([slot[name], new], dim=1) if name in slot else new
        length = whole.shape[1] if most is None else min(whole.shape[1], most)
        slot[name] = whole.narrow(1, whole.shape[1] - length, length).clone()  # a slice would keep everything
        return whole

    def _distances(self, position: nn.Linear, read: Band, x: Tensor) -> Tensor:
        """The projected waves of the distances, [H, distances, D], the farthest first."""
        R = waves(falling(read.distances - 1, read.distances, x.device), self.config.dim, x.dtype)
        return position(R).unflatten(1, (self.config.heads, -1)).transpose(0, 1)

    @classmethod
    def cost(cls, config: CausalLongShortAttentionConfig, shape: Shape) -> Cost:
        C, S, T, B = config.dim, config.slots, shape.length, shape.batch
        norms = 0 if config.norms == "none" else 2
        window = min(T, config.window - 1) * 2 * C
        held = T // config.chunk if config.chunks is None else min(T // config.chunk, config.chunks)
        open_ = T % config.chunk * (config.source_width + config.heads * S)
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + _far_cost(config, shape)
            + _band_cost(config, config.near(T), shape)
            + kept(shape, shape.rows * (2 * C + norms * C))
            + linear(shape, C, C, bias=config.bias)
            + Cost(parameters=2 * C * C + 2 * C + norms * 2 * C + C * config.heads * S)
            + Cost(state_bytes=B * (window + held * S * 2 * C + open_) * shape.element_bytes)
        )


def _far_cost(config: CausalLongShortAttentionConfig, shape: Shape) -> Cost:
    C, chunks, vectors = config.dim, (shape.length - 1) // config.chunk, config.far(shape.length)
    if vectors is None:
        return Cost()
    compressed = projection_cost(
        C, config.heads, config.slots, shape, chunks=chunks, length=config.chunk, width=config.source_width
    )
    rows = shape.batch * chunks * config.slots
    projected = matmul(rows, C, 2 * C) + kept(shape, rows * C) if config.compress == "hidden" else Cost()
    return compressed + projected + _band_cost(config, vectors, shape)


def _band_cost(config: CausalLongShortAttentionConfig, read: Band, shape: Shape) -> Cost:
    C, D, count = config.dim, config.dim // config.heads, shape.batch * config.heads
    tiles = count * read.count
    return (
        matmul(read.distances, C, C, backward=1)
        + matmul(read.count * read.rows, D, read.distances, count=count)
        + matmul(read.rows, D, 2 * read.columns, count=tiles)
        + kept(shape, tiles * (read.rows * read.columns + 2 * (read.rows + read.columns) * D))
    )
