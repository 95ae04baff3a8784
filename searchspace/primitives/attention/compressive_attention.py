"""Compressive attention: inputs that leave the memory are compressed, and later positions still read them.

Formula: relative_attention over [compressed, memory, x], compressed = f(the oldest `rate` inputs of the memory)

Rae et al. 2020, "Compressive Transformers", https://arxiv.org/abs/1911.05507, algorithm 1. It extends
`relative_attention` (segments, memory, relative scores) by a compressed memory. Keys and values are computed from
[compressed, memory, x], and distances are counted along this concatenation. After each segment, the oldest inputs that
no longer fit into the memory are compressed, `rate` to one. The newest `compressed` results are kept.

The loss of the task gives the compression no gradient. The compression learns from its own loss, |A(h, old) - A(h,
compressed(old))|^2, averaged over all elements, where A(h, y) = softmax(h Wq (y Wk)^T / sqrt(D)) y Wv per head without
positions and h is the segment that just ended. Everything except the compression is constant in it. The compressed
vectors depend only on the inputs, so all segments of a long input are computed at once.

The loss, times `reconstruction_weight`, is added to the losses of the context if gradients are recorded. In streaming
this holds only for streams that started in training mode. These keep the inputs, as the paper does. A stream that
started in evaluation mode keeps keys and values. It compresses as soon as it has read `rate` inputs, so that no step is
slower than the others. Positions enter only as distances: the model's position encoding has no effect on this block.

In a residual with a norm before its blocks, the memory holds what enters the norm. `compress: normed` compresses the
output of the norm, and the results are keys and values without another norm. `compress: raw` compresses what enters the
norm and normalises the results, as labml does. Its loss holds the norm constant too. Without such a norm the two are
equal.

`distances: learned` is the form of lucidrains/compressive-transformer-pytorch: one learned vector p per head and
distance instead of Wr R, without u and v: score = q . (k + p) / sqrt(D). It also has `output_bias`. B batch, T time, S
segment, M memory, c rate, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, Unnormed, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.distances import check_waves
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.memory_compression import (
    Compression,
    CompressionKind,
    compression_cost,
    reconstruction,
)
from searchspace.primitives.attention.relative_scores import (
    RelativeScores,
    cut,
    newest,
    norm_learns_cost,
    parameters_cost,
    reach_back,
    reading_cost,
    remembered_twice,
    segments,
)
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class CompressiveAttentionConfig:
    """`segment`: S, number of positions in a segment.
    `memory`: M, number of inputs in the memory.
    `compressed`: number of vectors in the compressed memory.
    `rate`: c, number of inputs that one compressed vector replaces.
    `compression`: the function that compresses.
    `reconstruction_weight`: weight of the reconstruction loss of the compression.
    `compress`: whether inputs are compressed after the norm of a pre-norm residual (normed), or before it (raw).
    `distances`: whether distances are encoded by waves, as in the paper (waves), or by learned vectors (learned).
    `share_biases`: whether all blocks of a model share u and v, or the learned vectors.
    `output_bias`: whether the output map has a bias.

    Raises ValueError if a length is not a multiple of the rate, the reconstruction weight is negative, or a convolution
    has a weight of 0, because it has no other loss to learn from.
    """

    dim: int = given()
    heads: int = 4
    segment: int = 16
    memory: int = 16
    compressed: int = 16
    rate: int = 2
    compression: CompressionKind = "convolution"
    reconstruction_weight: float = 1.0
    compress: Literal["normed", "raw"] = "normed"
    distances: Literal["waves", "learned"] = "waves"
    share_biases: bool = False
    output_bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        check_waves(self.dim)
        probability(dropout=self.dropout)
        at_least(1, segment=self.segment, compressed=self.compressed, rate=self.rate)
        at_least(0, memory=self.memory)
        for name, length in (("segment", self.segment), ("memory", self.memory)):
            if length % self.rate:
                raise ValueError(
                    f"{name} must be a multiple of rate, so that everything that leaves the memory is compressed, "
                    f"but got {name}={length}, rate={self.rate}."
                )
        if self.reconstruction_weight < 0:
            raise ValueError(f"reconstruction_weight must not be negative, but got {self.reconstruction_weight}.")
        if self.compression == "convolution" and not self.reconstruction_weight:
            raise ValueError(
                "reconstruction_weight must be above 0: a compression by convolution learns only from this loss. "
                "Use compression: mean if nothing should be learned."
            )

    @property
    def reconstructs(self) -> bool:
        """Whether the compression has parameters to learn."""
        return self.compression == "convolution"

    @property
    def most(self) -> int:
        """The largest number of keys that a query reads."""
        return self.compressed + self.memory + self.segment

    @property
    def learned(self) -> int | None:
        """The number of distances with a learned vector; None for waves."""
        return self.most if self.distances == "learned" else None

    def fallen(self, length: int) -> int:
        """How many of the first `length` positions have left the memory: all ended segments except the newest M
        positions.
        """
        return max(0, length - length % self.segment - self.memory)

    def readable(self, length: int) -> int:
        """The number of compressed vectors that the next position reads."""
        return min(self.compressed, self.fallen(length) // self.rate)

    def held(self, length: int) -> int:
        """The number of positions in the memory and in the current segment."""
        return length - self.fallen(length)

    def alone(self, length: int) -> bool:
        """Whether there is at most one segment and nothing leaves the memory when it ends."""
        return length <= self.segment and not self.losses(0, length)

    def losses(self, past: int, length: int) -> int:
        """The number of segments that end within `length` positions, after `past` earlier ones, and push inputs out of
        the memory.
        """
        return max(0, length // self.segment - (self.memory - past) // self.segment)


Pair = tuple[Tensor, Tensor]  # keys and values, each [B, H, positions, D]


@primitive(
    "compressive_attention",
    CompressiveAttentionConfig,
    published=Published(
        paper={"after a pre-norm, the outputs of the norm are compressed": "compress: raw"},
        code=("lucidrains/compressive-transformer-pytorch", "labmlai/annotated_deep_learning_paper_implementations"),
        released={
            "lucidrains learns one vector per head and distance for all layers, without u and v": (
                "distances: learned, share_biases: true"
            ),
            "lucidrains adds a bias to the output": "output_bias: true",
            "lucidrains keeps the output of the pre-norm as memory, so the norm learns nothing from it": "",
            "lucidrains counts the learned distances from the other end until the memory is full": "",
            "with enhanced_recurrence, each layer of lucidrains reads the memory of the next layer": "",
            "labml compresses what enters the pre-norm": "compress: raw",
        },
    ),
)
class CompressiveAttention(Primitive):
    """Attention over the segment, the memory and the compressed memory. Streaming keeps all three."""

    capabilities = Capabilities(bidirectional=False)

    def __init__(self, config: CompressiveAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.key_value = nn.Linear(config.dim, 2 * config.dim, bias=False)
        share, learned = config.share_biases, config.learned
        self.scores = RelativeScores(config.dim, config.heads, clamp=None, share=share, learned=learned)
        self.compression = Compression(config.compression, config.rate, config.dim)
        self.output = nn.Linear(config.dim, config.dim, bias=config.output_bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. It adds the reconstruction loss to `context.losses`, see the module."""
        slot, entered = context.slot(self), context.before_norm(x)
        q = split(self.query(x), self.config.heads)
        heads = self._whole(q, entered, context) if slot is None else self._piece(q, entered, slot, context)
        return self.output(merge(heads))

    def _source(self, entered: Unnormed) -> Tensor:
        """The inputs that are compressed, [B, T, C], without a gradient."""
        return (entered.x if self.config.compress == "raw" else entered.normed).detach()

    def _normed(self, packed: Tensor, entered: Unnormed, *, constant: bool = False) -> Tensor:
        """What keys and values of compressed vectors are made from, [B, E, C]; see `Unnormed.norm`."""
        return entered.norm(packed, constant=constant) if self.config.compress == "raw" else packed

    def _heads(self, y: Tensor) -> Pair:
        """y: [B, T, 2 * C] -> keys and values, [B, H, T, D] each."""
        k, v = (split(half, self.config.heads) for half in y.chunk(2, dim=2))
        return k, v

    def _whole(self, q: Tensor, entered: Unnormed, context: Context) -> Tensor:
        """All segments of a sequence at once."""
        x = entered.normed
        config, T, padding = self.config, x.shape[1], context.padding
        if config.alone(T):
            k, v = self._heads(self.key_value(x))
            allowed = None if padding is None else padding[:, None, None, :]
            return self._scored(q, k, v, self.scores.distances(T, T, q), allowed)
        present, remembered = (self._heads(y) for y in remembered_twice(entered, self.key_value.weight))
        fallen = config.fallen((segments(T, config.segment) - 1) * config.segment)  # before the last segment
        needed = max(fallen, config.fallen(T)) if self._relearns else fallen
        real = None if padding is None else padding[:, :needed]
        packed = self.compression(self._source(entered)[:, :needed], real)
        if self._relearns and config.losses(0, T):
            constant = (q.detach(), remembered[0].detach(), remembered[1].detach())
            self._relearn(*constant, self._normed(packed, entered, constant=True), context, past=0)
        old = self._heads(self.key_value(self._normed(packed.detach()[:, : fallen // config.rate], entered)))
        k, v = (self._windows(*parts) for parts in zip(present, remembered, old, strict=True))
        r = self.scores.distances(config.segment, k.shape[2], q)
        out = self._scored(cut(q, config.segment).flatten(0, 1), k, v, r, self._readable(q, padding, fallen))
        return out.unflatten(0, (q.shape[0], -1)).transpose(1, 2).flatten(2, 3)[:, :, :T]

    def _windows(self, present: Tensor, remembered: Tensor, packed: Tensor) -> Tensor:
        """The keys or values that each segment reads, [compressed, memory, x]: [B * N, H, K, D], zeros where there are
        none.
        """
        config, S = self.config, self.config.segment
        N = segments(present.shape[2], S)
        compressed = newest(packed, config.compressed, S // config.rate, N)
        memory = newest(remembered[:, :, : (N - 1) * S], config.memory, S, N)
        return torch.cat([compressed, memory, cut(present, S)], dim=3).flatten(0, 1)

    def _readable(self, q: Tensor, padding: Tensor | None, fallen: int) -> Tensor:
        """[G, 1, S, K], True where a key exists, is real, and is not after the query."""
        (B, _, T, _), S = q.shape, self.config.segment
        real = q.new_ones(1, T, dtype=torch.bool) if padding is None else padding
        packed = self.compression.readable(real[:, :fallen])
        there = self._windows(real[:, None, :, None], real[:, None, :, None], packed[:, None, :, None]).transpose(2, 3)
        allowed = there & (reach_back(S, there.shape[3], q.device) >= 0)
        return allowed if padding is not None else allowed.repeat(B, 1, 1, 1)

    def _scored(self, q: Tensor, k: Tensor, v: Tensor, r: Tensor, real: Tensor | None) -> Tensor:
        """real: [G, 1, 1 or n, K]. If it only describes keys, the causal mask is added."""
        n, K = q.shape[2], k.shape[2]
        allowed = real
        if n > 1 and (real is None or real.shape[2] == 1):
            past = (reach_back(n, n if real is None else K, q.device) >= 0)[None, None]
            allowed = past if real is None else real & past
        dropout = self.config.dropout if self.training else 0.0
        return self.scores(q, k, v, r, allowed, dropout=dropout, may_be_empty=real is not None)

    def _relearn(self, q: Tensor, k: Tensor, v: Tensor, packed: Tensor, context: Context, *, past: int) -> None:
        """Add the reconstruction loss of the segments that end in q, k and v, [B, H, past + T, D], and push inputs out.

        packed: [B, E, C], the compressed vectors of the oldest inputs, normed if their norm comes afterwards.
        """
        config, S, c = self.config, self.config.segment, self.config.rate
        N = config.losses(past, q.shape[2] - past)
        end = q.shape[2] - (q.shape[2] - past) % S
        fallen = end - config.memory

        def each(y: Tensor, size: int) -> Tensor:
            """y: [B, H, n, D] -> [B * N, H, size, D], the last `size` entries of each segment."""
            return newest(y, size, size, N).flatten(0, 1)

        k, v = (each(y[:, :, :fallen], S) for y in (k, v))
        results = F.linear(packed[:, : fallen // c], self.key_value.weight.detach())
        K, V = (each(y, S // c) for y in self._heads(results))
        real = None
        if context.padding is not None or (config.memory - past) % S:  # the first segment pushes out less than S inputs
            there = q.new_ones(q.shape[0], q.shape[2], dtype=torch.bool) if context.padding is None else context.padding
            lost = there[:, None, :fallen, None]
            left = self.compression.readable(there[:, :fallen])[:, None, :, None]
            wide = (each(there[:, None, :end, None], S), each(lost, S), each(left, S // c))
            real = (wide[0][:, 0, :, 0], wide[1][:, 0, :, 0], wide[2][:, 0, :, 0])
        loss = reconstruction(each(q[:, :, :end], S), (k, v), (K, V), real)
        context.add_loss("reconstruction", config.reconstruction_weight * loss)

    def _piece(self, q: Tensor, entered: Unnormed, slot: dict[str, Tensor], context: Context) -> Tensor:
        """Read a piece of a stream, segment by segment."""
        x = entered.x
        config, begin = self.config, context.streams.length if context.streams else 0
        keeps_inputs = "inputs" in slot if slot else self.training
        within = self._within_inputs if keeps_inputs else self._within_keys
        seen = torch.cat([slot["inputs"], x], dim=1).detach() if keeps_inputs and slot else x.detach()
        outs: list[Tensor] = []
        done = 0
        while not outs or done < x.shape[1]:
            left = min(x.shape[1] - done, config.segment - (begin + done) % config.segment)
            part = Unnormed(x.narrow(1, done, left), entered.normed.narrow(1, done, left), entered.module)
            outs.append(within(q.narrow(2, done, left), part, slot, begin + done))
            done += left
        past = config.held(begin) - begin % config.segment
        if keeps_inputs and self._relearns and config.losses(past, seen.shape[1] - past):
            self._relearn_inputs(Unnormed(seen, entered.norm(seen).detach(), entered.module), context, past)
        return torch.cat(outs, dim=2)

    def _relearn_inputs(self, entered: Unnormed, context: Context, past: int) -> None:
        """The same as `_relearn`, but starts from inputs instead of queries, keys and values."""
        inputs = entered.normed
        fallen = inputs.shape[1] - (inputs.shape[1] - past) % self.config.segment - self.config.memory
        q = split(F.linear(inputs, self.query.weight.detach()), self.config.heads)
        k, v = self._heads(F.linear(inputs, self.key_value.weight.detach()))
        packed = self._normed(self.compression(self._source(entered)[:, :fallen]), entered, constant=True)
        self._relearn(q, k, v, packed, context, past=past)

    @property
    def _relearns(self) -> bool:
        return self.config.reconstructs and torch.is_grad_enabled()

    def _within_inputs(self, q: Tensor, entered: Unnormed, slot: dict[str, Tensor], start: int) -> Tensor:
        """Read positions of one segment, after `start`. The slot keeps inputs and compressed vectors."""
        x = entered.x
        config, stop = self.config, start + x.shape[1]
        nothing = x[:, :0].detach()
        inputs, packed = slot.get("inputs", nothing), slot.get("packed", nothing)
        old = self._heads(self.key_value(torch.cat([self._normed(packed, entered), entered.norm(inputs)], dim=1)))
        slot["inputs"] = torch.cat([inputs, x.detach()], dim=1)
        if fell := config.fallen(stop) - config.fallen(start):
            fallen = slot["inputs"][:, :fell]
            results = self.compression(fallen if config.compress == "raw" else entered.norm(fallen)).detach()
            slot["packed"] = _last(torch.cat([packed, results], dim=1), config.readable(stop), dim=1)
            slot["inputs"] = _last(slot["inputs"], config.held(stop), dim=1)
        else:
            slot["packed"] = packed
        k, v = (torch.cat(parts, dim=2) for parts in zip(old, self._heads(self.key_value(entered.normed)), strict=True))
        return self._scored(q, k, v, self._distances(q, k, fresh=True), None)

    def _within_keys(self, q: Tensor, entered: Unnormed, slot: dict[str, Tensor], start: int) -> Tensor:
        """The same, but the slot keeps keys and values of [compressed, memory, x], and of compressed vectors not yet
        readable.
        """
        c, fresh, group, stop = self.config.rate, not slot, self._source(entered), start + q.shape[2]
        if not fresh:
            group = torch.cat([slot["group"], group], dim=1)
        slot["group"] = _last(group, stop % c, dim=1)
        k, v = self._heads(self.key_value(entered.normed))
        late = None
        if fresh or stop // c > start // c:
            results = self.compression(group[:, : (stop // c - start // c) * c])
            late = self._heads(self.key_value(self._normed(results, entered)).detach())
        k = self._turned(slot, "k", k, None if late is None else late[0], start)
        v = self._turned(slot, "v", v, None if late is None else late[1], start)
        return self._scored(q, k, v, self._distances(q, k, fresh), None)

    def _turned(self, slot: dict[str, Tensor], name: str, new: Tensor, results: Tensor | None, start: int) -> Tensor:
        """All keys (or values) that may be read. At the end of a segment, the slot keeps those that the next segment
        may read.
        """
        config, stop, wait = self.config, start + new.shape[2], f"waiting_{name}"
        row = torch.cat([slot.get(name, new[:, :, :0]), new], dim=2)
        slot[name] = row.detach()
        if results is not None:
            slot[wait] = torch.cat([slot.get(wait, results[:, :, :0]), results], dim=2)
        if stop % config.segment == 0:
            fell = (config.fallen(stop) - config.fallen(start)) // config.rate
            packed = torch.cat([row[:, :, : config.readable(start)], slot[wait][:, :, :fell]], dim=2)
            packed = packed[:, :, packed.shape[2] - config.readable(stop) :]
            slot[name] = torch.cat([packed, row[:, :, row.shape[2] - config.held(stop) :]], dim=2).detach()
            slot[wait] = slot[wait][:, :, fell:].clone()
        return row

    def _distances(self, q: Tensor, k: Tensor, fresh: bool) -> Tensor:
        return self.scores.remembered_distances(q.shape[2], k.shape[2], q, most=self.config.most, fresh=fresh)

    @classmethod
    def states(cls, config: CompressiveAttentionConfig) -> Mapping[str, str]:
        heads = dict.fromkeys(("k", "v", "waiting_k", "waiting_v"), "B H W D")
        return heads | dict.fromkeys(("inputs", "packed", "group"), "B W C")

    @classmethod
    def cost(cls, config: CompressiveAttentionConfig, shape: Shape) -> Cost:
        """Every key of a window is counted, including masked ones. The loss, which only training computes, is counted
        too.
        """
        B, T, C, S, c = shape.batch, shape.length, config.dim, config.segment, config.rate
        N = segments(T, S)
        queries, keys = (T, T) if config.alone(T) else (S, config.most)
        normed, learned = shape.normed and not config.alone(T), config.learned
        fallen = config.fallen((N - 1) * S)
        needed = max(fallen, config.fallen(T)) if config.reconstructs else fallen
        state = 2 * C * (config.readable(T) + config.held(T) + T // c - config.fallen(T) // c) + C * (T % c)
        return (
            linear(shape, C, 3 * C, bias=False)
            + (norm_learns_cost(C, shape) if normed else Cost())
            + parameters_cost(C, config.heads, share=config.share_biases, learned=learned)
            + compression_cost(config.compression, c, C, shape, B * needed // c)
            + matmul(B * fallen // c, C, 2 * C, backward=2 if normed and config.compress == "raw" else 1)
            + kept(shape, B * fallen // c * C)
            + reading_cost(C, config.heads, shape, groups=B * N, queries=queries, keys=keys, learned=learned)
            + kept(shape, 2 * B * N * keys * C)  # keys and values
            + (_loss_cost(config, shape) if config.reconstructs else Cost())
            + linear(shape, C, C, bias=config.output_bias)
            + Cost(state_bytes=B * state * shape.element_bytes)
        )


def _loss_cost(config: CompressiveAttentionConfig, shape: Shape) -> Cost:
    """The cost of `_relearn`. Queries and the keys and values of the old attention get no gradient."""
    B, C, S, E = shape.batch, config.dim, config.segment, config.segment // config.rate
    D, N = C // config.heads, config.losses(0, shape.length)
    results = B * config.fallen(shape.length) // config.rate if N else 0
    count = B * N * config.heads
    return (
        matmul(results, C, 2 * C, backward=1)
        + matmul(S, D, 2 * S, count=count, backward=0)
        + matmul(S, D, E, count=count, backward=1)
        + matmul(S, E, D, count=count)
        + kept(shape, B * N * (3 * S + 2 * E) * C)
    )


def _last(y: Tensor, length: int, dim: int) -> Tensor:
    """The last `length` positions, copied if a slice would keep more in memory."""
    return y if y.shape[dim] == length else y.narrow(dim, y.shape[dim] - length, length).clone()
