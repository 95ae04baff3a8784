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
projects the result.

`compress: mixed` is the released code (NVIDIA/transformer-ls). The sequence is cut into segments of `segment`
positions. Chunks of earlier segments are compressed from inputs (hidden), those of the current one from keys and values
(projected). The inputs of earlier segments get no gradient. Behind a pre-norm they are kept before the norm. A query
reads the last `chunks` chunks before its segment, and all earlier ones inside it. The released code starts with a
memory of zeros, which queries read: `compress: mixed_from_zeros`. Its map W' of distances has a bias: `distance_bias:
true`.

With `one_map`, keys and values are equal. With `head_norms`, each head is normalised alone. lucidrains/
long-short-transformer has both. B batch, T time, N chunks, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.sparse_attention.banded_attention import Band, Reading, band, banded_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, Unnormed, given
from searchspace.cost import Cost, Shape, kept, linear, state
from searchspace.primitives.attention.distances import check_waves, falling, waves
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.sparse_attention.dynamic_projection import (
    DynamicProjection,
    Norms,
    keys_and_values,
    norm_widths,
    normed,
)
from searchspace.primitives.sparse_attention.long_short_costs import band_cost, far_cost, mixed_cost
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class CausalLongShortAttentionConfig:
    """`window`: W, number of last positions that a query reads.
    `chunk`: L, number of positions in a chunk.
    `slots`: S, number of vectors per head that a chunk is compressed into.
    `chunks`: number of earlier chunks that a query reads; null reads all.
    `norms`: how the two LayerNorms of keys and values are applied: separately, as in the released code (apart), one
    after the other (chained), or not at all (none).
    `head_norms`: whether each head is normalised alone, with the same gain for all heads, instead of the full width.
    `compress`: the input of the compression: projected keys and values (projected), the input before projection
    (hidden), or the input for earlier segments and keys and values for the current one (mixed), also with a memory of
    zeros at first (mixed_from_zeros).
    `segment`: number of positions in a segment, used by mixed and mixed_from_zeros.
    `one_map`: whether one linear map gives keys and values, so that they are equal.
    `distance_bias`: whether the map W' of the distances to compressed vectors has a bias, as in the released code.

    Raises ValueError if heads does not divide dim, dim is odd, the window is shorter than a chunk, another number is
    below 1, the dropout is not a probability, or mixed has a segment that is no multiple of the chunk or fewer chunks
    than its window needs.
    """

    dim: int = given()
    causal: bool = given(True)
    heads: int = 4
    window: int = 32
    chunk: int = 4
    slots: int = 1
    chunks: int | None = 16
    norms: Norms = "apart"
    head_norms: bool = False
    compress: Literal["projected", "hidden", "mixed", "mixed_from_zeros"] = "projected"
    segment: int = 32
    one_map: bool = False
    distance_bias: bool = False
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        check_waves(self.dim)
        probability(dropout=self.dropout)
        at_least(1, chunk=self.chunk, slots=self.slots, chunks=self.chunks, segment=self.segment)
        if self.window < self.chunk:
            raise ValueError(
                "window must be at least chunk, because otherwise some positions of a chunk are never read, "
                f"but got window={self.window}, chunk={self.chunk}."
            )
        if self.mixed:
            check_mixed(self)

    @property
    def mixed(self) -> bool:
        """Whether chunks of earlier segments are compressed in another way than those of the current one."""
        return self.compress in ("mixed", "mixed_from_zeros")

    @property
    def parts(self) -> int:
        """How many maps of width C give keys and values."""
        return 1 if self.one_map else 2

    @property
    def source_width(self) -> int:
        """The width of a position's elements that are compressed."""
        return self.dim if self.compress == "hidden" else self.parts * self.dim

    @property
    def carried(self) -> int | None:
        """The number of positions before a segment that mixed carries; None for all."""
        return None if self.chunks is None else self.chunks * self.chunk

    @property
    def zeros(self) -> int:
        """The number of zeros that mixed carries at first."""
        return (self.carried or 0) if self.compress == "mixed_from_zeros" else 0

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
        reach = None if self.mixed else self.chunks
        return band(queries, before=chunks - 1, reach=reach, step=self.chunk, slots=self.slots, past=past)


def check_mixed(config: CausalLongShortAttentionConfig) -> None:
    """Raises ValueError unless segments are whole chunks, and the memory has the positions of the window."""
    if config.segment % config.chunk:
        raise ValueError(
            f"segment must be a multiple of chunk, but got segment={config.segment}, chunk={config.chunk}."
        )
    if config.carried is None:
        if config.compress == "mixed_from_zeros":
            raise ValueError(
                "chunks must be a number with mixed_from_zeros, because it is how many zeros are read, but is null."
            )
    elif config.carried < config.window - 1:
        raise ValueError(
            "chunks must hold the positions that the window reads before a segment, "
            f"but got chunks={config.chunks}, chunk={config.chunk}, window={config.window}."
        )


Masks = tuple[Tensor | None, Tensor | None, Tensor | None]


@primitive(
    "causal_long_short_attention",
    CausalLongShortAttentionConfig,
    published=Published(
        paper={"a query reads the vectors of the last 16 chunks instead of all": "chunks: null"},
        code=("NVIDIA/transformer-ls", "lucidrains/long-short-transformer"),
        released={
            "the map of the distances to compressed vectors has a bias": "distance_bias: true",
            "chunks of earlier segments are compressed from inputs, those of the current one from keys and values": (
                "compress: mixed"
            ),
            "its memory starts with zeros, which queries read": "compress: mixed_from_zeros",
            "lucidrains has one map for keys and values, and norms of single heads": "one_map: true, head_norms: true",
            "lucidrains has rotary positions and whole windows, and computes P from keys and values": "",
        },
    ),
)
class CausalLongShortAttention(Primitive):
    """Streaming keeps the keys and values of the window, the vectors that may be read, and the incomplete chunk."""

    capabilities = Capabilities(bidirectional=False)

    def __init__(self, config: CausalLongShortAttentionConfig) -> None:
        super().__init__()
        self.config = config
        C, H = config.dim, config.heads
        self.query = nn.Linear(C, C, bias=config.bias)
        self.key_value = nn.Linear(C, config.parts * C, bias=config.bias)
        self.projection = DynamicProjection(C, H, config.slots)
        width, _ = norm_widths(C, H, per_head=config.head_norms)
        self.near_norm, self.far_norm = (None if config.norms == "none" else nn.LayerNorm(width) for _ in range(2))
        self.near_position = nn.Linear(C, C, bias=False)  # W
        self.far_position = nn.Linear(C, C, bias=config.distance_bias)  # W'
        self.content_bias = nn.Parameter(torch.zeros(H, 1, C // H))  # u
        self.position_bias = nn.Parameter(torch.zeros(H, 1, C // H))  # v
        self.output = nn.Linear(C, C, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        config, T = self.config, x.shape[1]
        slot = context.slot(self)
        q = split(self.query(x), config.heads) * (config.dim // config.heads) ** -0.5
        if config.mixed:
            start = context.streams.length if context.streams else 0
            heads = self._mixed(q, context.before_norm(x), {} if slot is None else slot, start, context.padding)
            return self.output(merge(heads))
        past, chunks = self._read_before(slot)
        both = self.key_value(x)
        near = normed(self.near_norm, both)
        far, real = self._far(x, near if config.norms == "chained" else both, context.padding, slot)
        if slot is not None:
            near = self._remembered(slot, "near", near, config.window - 1)
        vectors = config.far(T, chunks, past)
        return self.output(merge(self._read(q, near, far, vectors, (context.padding, context.padding, real))))

    def _read(self, q: Tensor, near: Tensor, far: Tensor, vectors: Band | None, real: Masks) -> Tensor:
        """q: [B, H, T, D], near and far: the keys and values that are read -> [B, H, T, D].

        real: masks of the queries, of `near` and of `far`, [B, ..] each; None if all are real.
        """
        config, T = self.config, q.shape[2]
        queries, near_real, far_real = real
        window = config.near(T, near.shape[1] - T)
        k, v = (split(y, config.heads) for y in keys_and_values(near, shared=config.one_map))
        r = self._distances(self.near_position, window, near)
        readings = [Reading(window, q + self.content_bias, q + self.position_bias, k, v, r, near_real)]
        if vectors is not None:
            k, v = (split(y, config.heads) for y in keys_and_values(far, shared=config.one_map))
            r = self._distances(self.far_position, vectors, near)
            readings.append(Reading(vectors, q, q, k, v, r, far_real))
        dropout = config.dropout if self.training else 0.0
        return banded_attention(readings, queries=queries, dropout=dropout)

    def _mixed(
        self, q: Tensor, entered: Unnormed, slot: dict[str, Tensor], start: int, padding: Tensor | None
    ) -> Tensor:
        """Segment by segment, as the released code reads them; q: [B, H, T, D] -> [B, H, T, D].

        The slot keeps the inputs of the memory and of the current segment, before a norm.
        """
        config, (B, T, C), S = self.config, entered.x.shape, self.config.segment
        kept = slot["inputs"] if slot else entered.x.new_zeros(B, config.zeros, C)
        real = None if padding is None else padding.new_ones(B, kept.shape[1])
        outs: list[Tensor] = []
        done = 0
        while not outs or done < T:
            filled = (start + done) % S
            n = min(T - done, S - filled)
            piece = Unnormed(entered.x.narrow(1, done, n), entered.normed.narrow(1, done, n), entered.module)
            real = None if real is None or padding is None else torch.cat([real, padding.narrow(1, done, n)], dim=1)
            outs.append(self._segment(q.narrow(2, done, n), piece, kept, filled, real))
            kept, done = torch.cat([kept, piece.x.detach()], dim=1), done + n
            if filled + n == S:
                kept = self._last(kept, config.carried)
                real = None if real is None else self._last(real, config.carried)
        slot["inputs"] = kept
        return torch.cat(outs, dim=2)

    def _segment(self, q: Tensor, entered: Unnormed, kept: Tensor, filled: int, real: Tensor | None) -> Tensor:
        """Queries of one segment, after `filled` of its positions; q: [B, H, n, D].

        kept: the inputs of the memory and of these positions, [B, M + filled, C]. real: [B, M + filled + n].
        """
        config, n = self.config, q.shape[2]
        M, L = kept.shape[1] - filled, config.chunk
        old = entered.norm(kept)
        before = min(config.window - 1, old.shape[1])
        both = torch.cat([self.key_value(old[:, M:]), self.key_value(entered.normed)], dim=1)  # of this segment
        near = own_near = normed(self.near_norm, both)
        if before > filled:
            earlier = normed(self.near_norm, self.key_value(old[:, old.shape[1] - before : M]))
            near = torch.cat([earlier, near], dim=1)
        near = near[:, near.shape[1] - before - n :]
        vectors = config.far(n, (M + filled) // L, filled % L)
        far, far_real = near[:, :0], None
        if vectors is not None:
            own = (filled + n - 1) // L * L  # positions of the chunks that are read
            hidden = torch.cat([old[:, M:], entered.normed], dim=1)[:, :own]
            source = (own_near if config.norms == "chained" else both)[:, :own]
            parts = [self._summary(old[:, :M], old[:, :M], "hidden", None if real is None else real[:, :M])]
            parts.append(self._summary(source, hidden, "projected", None if real is None else real[:, M : M + own]))
            far = torch.cat([y for y, _ in parts], dim=1)
            far_real = None if real is None else torch.cat([mask for _, mask in parts if mask is not None], dim=1)
        queries = None if real is None else real[:, -n:]
        return self._read(q, near, far, vectors, (queries, None if real is None else real[:, -n - before :], far_real))

    def _summary(
        self, source: Tensor, hidden: Tensor, compress: str, real: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The vectors of whole chunks and which of them are real; source and hidden: [B, N * L, ..]."""
        L = self.config.chunk
        cut = (source.shape[1] // L, L)
        far = self._vectors(source.unflatten(1, cut), self.projection.logits(hidden).unflatten(1, cut), real, compress)
        if real is not None:
            real = real.unflatten(1, (real.shape[1] // L, L)).any(2).repeat_interleave(self.config.slots, 1)
        return far, real

    @staticmethod
    def _last(y: Tensor, most: int | None) -> Tensor:
        """The last `most` positions of [B, T, ..], copied."""
        length = y.shape[1] if most is None else min(y.shape[1], most)
        return y.narrow(1, y.shape[1] - length, length).clone()

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
            return x.new_zeros(x.shape[0], 0, config.parts * config.dim), None
        source = x if config.compress == "hidden" else keys_values
        material = torch.cat([source, self.projection.logits(x)], dim=2)
        if slot is not None:
            material = torch.cat([slot["open"], material], dim=1) if slot else material
            length = material.shape[1]
            slot["open"] = material[:, length - length % config.chunk :].clone()
        chunks = length // config.chunk
        full = chunks * config.chunk
        real = None if padding is None else padding[:, :full]
        whole = material[:, :full].unflatten(1, (chunks, config.chunk))
        source, logits = whole.tensor_split([config.source_width], dim=3)
        far = self._vectors(source, logits, real, config.compress)
        if slot is not None:
            far = self._remembered(slot, "far", far, config.chunks and config.chunks * config.slots)
        if real is not None:
            real = real.unflatten(1, (chunks, config.chunk)).any(2).repeat_interleave(config.slots, 1)
        return far, real

    def _vectors(self, source: Tensor, logits: Tensor, padding: Tensor | None, compress: str) -> Tensor:
        """source: [B, N, L, X], the elements to compress, logits: [B, N, L, H * S], of P -> [B, N * S, 2 C]."""
        far = self.projection(source, logits, padding=padding)
        if compress == "hidden":
            far = self.key_value(far)
            far = normed(self.near_norm, far) if self.config.norms == "chained" else far
        return normed(self.far_norm, far)

    def _remembered(self, slot: dict[str, Tensor], name: str, new: Tensor, most: int | None) -> Tensor:
        """The tensor kept as `name` followed by `new`. The slot keeps the last `most` entries."""
        whole = torch.cat([slot[name], new], dim=1) if name in slot else new
        slot[name] = self._last(whole, most)
        return whole

    def _distances(self, position: nn.Linear, read: Band, x: Tensor) -> Tensor:
        """The projected waves of the distances, [H, distances, D], the farthest first."""
        R = waves(falling(read.distances - 1, read.distances, x.device), self.config.dim, x.dtype)
        return position(R).unflatten(1, (self.config.heads, -1)).transpose(0, 1)

    @classmethod
    def states(cls, config: CausalLongShortAttentionConfig) -> Mapping[str, str]:
        far = "B T C" if config.chunks is None else "B W C"
        return {"near": "B W C", "far": far, "open": "B W C", "inputs": "B W C"}

    @classmethod
    def cost(cls, config: CausalLongShortAttentionConfig, shape: Shape) -> Cost:
        C, S, T, P = config.dim, config.slots, shape.length, config.parts
        norms = 0 if config.norms == "none" else 2
        width, stretches = norm_widths(C, config.heads, per_head=config.head_norms)
        statistics = 8 * P * stretches if norms and config.head_norms else 0
        parameters = 2 * C * C + 2 * C + norms * 2 * width + C * config.heads * S + (C if config.distance_bias else 0)
        maps = (
            linear(shape, C, (1 + P) * C, bias=config.bias)
            + linear(shape, C, C, bias=config.bias)
            + Cost(parameters=parameters, activation_bytes=shape.rows * statistics)
            + kept(shape, shape.rows * (2 * C + norms * C * P // 2))
        )
        if config.mixed:
            return maps + mixed_cost(config, shape)
        window = min(T, config.window - 1) * P * C
        held = T // config.chunk if config.chunks is None else min(T // config.chunk, config.chunks)
        far, grown = held * S * P * C, 0 if config.chunks is not None else held * S * P * C
        open_ = T % config.chunk * (config.source_width + config.heads * S)
        return (
            maps
            + far_cost(config, shape)
            + band_cost(config, config.near(T), shape)
            + state(shape, window + open_ + far - grown, growing=grown)
        )
