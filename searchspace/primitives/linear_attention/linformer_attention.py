"""Linformer attention: keys and values are mixed along the length into a few slots, so the cost grows as T.

Formula: softmax(Q (E K)^T / sqrt(D)) (F V)

Wang et al. 2020, "Linformer", https://arxiv.org/abs/2006.04768, eq. 7. E and F have shape [slots, length]. They are
shared as in section 4 of the paper. "none": each head has its own E and F. "headwise": one E and one F per layer.
"key_value": one matrix for both. "layerwise": one matrix for both in all layers of the model. A shorter sequence uses
the first columns. Padded keys are set to zero before E. There is no causal form, because earlier and later positions
are mixed before they are read. Rotary positions and ALiBi have no effect for the same reason.

A commonly used implementation (lucidrains/linformer) adds three options: groups of queries, or all of them, share a
head of keys and values (`key_value_heads`); one linear map gives both keys and values (`one_map`; there it comes with
`sharing: key_value`); the keys come from another sequence, here from the encoder (`over: memory`), so that a decoder
can use it. B batch, T time, S positions that the keys come from, N the longest S, K slots, H heads, G heads of keys and
values, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.attention.attention import attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, common, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.over_memory import Over, check_over, memory_of
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.sharing import shared

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class LinformerAttentionConfig:
    """`key_value_heads`: G, number of key and value heads; null takes as many as heads.
    `over`: "self" reads the sequence itself, "memory" the encoder's output.
    `slots`: K, number of slots that the keys and values are mixed into.
    `length`: N, the longest sequence to read; E and F have one column per position.
    `sharing`: what shares E and F: nothing (none), the heads of a layer (headwise), also keys and values (key_value),
    also all layers (layerwise).
    `one_map`: whether one linear map gives both keys and values, so that they differ only by E and F.

    Raises ValueError if the numbers of heads do not divide the width, the length is below the number of slots, the
    dropout is not a probability, or the block reads a memory in a model without an encoder.
    """

    dim: int = given()
    causal: bool = given(False)
    memory: bool = given(False)
    heads: int = 4
    key_value_heads: int | None = None
    over: Over = "self"
    slots: int = 64
    length: int = 512
    sharing: Literal["headwise", "none", "key_value", "layerwise"] = "headwise"
    one_map: bool = False
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads, self.key_value_heads)
        check_over(self.over, self.memory)
        probability(dropout=self.dropout)
        at_least(1, slots=self.slots)
        if self.length < self.slots:
            raise ValueError(f"length must be at least slots, but got length={self.length}, slots={self.slots}.")

    @property
    def longest(self) -> int:
        """The length of the longest sequence that it can read."""
        return self.length

    @property
    def groups(self) -> int:
        """G, the number of key and value heads."""
        return self.key_value_heads or self.heads

    @property
    def widths(self) -> tuple[int, ...]:
        """The output widths of the linear maps: of queries, then of keys and of values, or of both."""
        width = self.groups * (self.dim // self.heads)
        return (self.dim, width) if self.one_map else (self.dim, width, width)

    @property
    def matrices(self) -> int:
        """The number of matrices of [slots, length]."""
        return {"none": 2 * self.groups, "headwise": 2, "key_value": 1, "layerwise": 1}[self.sharing]

    @property
    def layerwise(self) -> tuple[str, int, int]:
        """The key of the matrix: layers share a matrix if their keys are equal."""
        return ("linformer_attention", self.slots, self.length)


@primitive(
    "linformer_attention",
    LinformerAttentionConfig,
    published=Published(
        code=("lucidrains/linformer",),
        released={
            "E and F start from a uniform distribution": "",
            "if one_kv_head is set, all heads share a head of keys and values": "key_value_heads: 1",
            "if share_kv is set, keys and values have one map and one matrix": "one_map: true, sharing: key_value",
        },
    ),
)
class LinformerAttention(Primitive):
    """Attention over slots that mix a whole sequence: its own, if it may look ahead, or that of the encoder. Streaming
    keeps the slots of the encoder's output.
    """

    capabilities = Capabilities(causal=False, streaming=False, cross=True)

    @classmethod
    def able(cls, fields: Mapping[str, Any]) -> Capabilities:
        """Over the memory it does not look ahead, and its slots do not change while it streams."""
        if fields.get("over", "self") == "self":
            return cls.capabilities
        return replace(cls.capabilities, causal=True, streaming=True)

    def __init__(self, config: LinformerAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, sum(config.widths), bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        # E of every head, then F of every head; or E, F; or E alone
        self.mixing = shared(config.layerwise, self._mixing) if config.sharing == "layerwise" else self._mixing()

    def _mixing(self) -> nn.Parameter:
        """N(0, 1 / K), as in the paper's theory: a slot preserves the products of a query with the keys, up
        to noise.
        """
        config = self.config
        return nn.Parameter(torch.randn(config.matrices, config.slots, config.length) * config.slots**-0.5)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C].

        Raises ValueError if S is larger than `length`, the context is streaming and the block reads its own sequence,
        or the block reads the memory and there is none.
        """
        over_memory = self.config.over == "memory"
        slot = context.slot(self, causal=over_memory)
        if slot:
            K, V = slot["k"], slot["v"]
        else:
            padding = context.get("memory_padding") if over_memory else context.padding
            K, V = self._slots(memory_of(context) if over_memory else x, padding)
        if slot is not None:
            slot |= {"k": K.contiguous(), "v": V.contiguous()}
        W, b = self.query_key_value.weight, self.query_key_value.bias
        C = self.config.dim
        q = functional.linear(x, W[:C], None if b is None else b[:C])
        out = attention(split(q, self.config.heads), K, V, dropout=self.config.dropout if self.training else 0.0)
        return self.output(merge(out))

    def _slots(self, y: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        """y: [B, S, C], padding: [B, S] -> K and V, [B, G, slots, D] each."""
        W, b = self.query_key_value.weight, self.query_key_value.bias
        maps = W.split(self.config.widths)[1:]
        biases = None if b is None else b.split(self.config.widths)[1:]
        matrices = self._matrices(y.shape[1])
        if padding is not None:
            y = y.masked_fill(~padding[:, :, None], 0)
        if self.config.sharing == "none":
            return self._by_head(y, maps, biases, matrices, padding)
        return self._at_once(y, maps, biases, matrices, padding)

    def _at_once(
        self, y: Tensor, maps: Tensors, biases: Tensors | None, matrices: Tensors, padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """K and V if all heads share their matrices.

        E (y W) is computed as (E y) W, so only the slots are projected, not all positions. A bias is weighted by the
        sum of the slot's row.
        """
        E, F = matrices
        mixed = E @ y
        both = (mixed, mixed if F is E else F @ y)
        slots = [functional.linear(each, W) for each, W in zip(both, (maps[0], maps[-1]), strict=True)]
        if biases is not None:
            ones = y.new_ones(1, y.shape[1], 1) if padding is None else padding[:, :, None].to(y.dtype)
            shifts = [(matrix @ ones) * c for matrix, c in zip(matrices, (biases[0], biases[-1]), strict=True)]
            slots = [slot + shift for slot, shift in zip(slots, shifts, strict=True)]
        K, V = (split(slot, self.config.groups) for slot in slots)
        return K, V

    def _by_head(
        self, y: Tensor, maps: Tensors, biases: Tensors | None, matrices: Tensors, padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The same if each head has its own matrices."""
        parts = functional.linear(y, torch.cat(maps), None if biases is None else torch.cat(biases))
        if padding is not None and biases is not None:
            parts = parts.masked_fill(~padding[:, :, None], 0)
        keys, *values = parts.split(self.config.widths[1:], dim=2)
        K, V = (self._mixed(*pair) for pair in zip(matrices, (keys, values[0] if values else keys), strict=True))
        return K, V

    def _mixed(self, matrix: Tensor, y: Tensor) -> Tensor:
        """matrix: [G, slots, S], y: [B, S, G * D] -> [B, G, slots, D], without a copy of the matrix for each
        sequence.
        """
        B = len(y)
        columns = y.unflatten(2, (self.config.groups, -1)).permute(2, 1, 0, 3).flatten(2)  # [G, S, B * D]
        return (matrix @ columns).unflatten(2, (B, -1)).permute(2, 0, 1, 3)

    def _matrices(self, length: int) -> tuple[Tensor, Tensor]:
        """E and F, [1 or G, slots, S]; the same tensor if they share one matrix."""
        if length > self.config.length:
            raise ValueError(
                f"linformer_attention was built for at most {self.config.length} positions, but got {length}. "
                f"Set linformer_attention: {{length: ...}} to the longest sequence."
            )
        mixing = self.mixing[:, :, :length]
        if self.config.matrices == 1:
            return mixing, mixing
        E, F = mixing.chunk(2)
        return E, F

    @classmethod
    def reads(cls, config: LinformerAttentionConfig) -> tuple[str, ...]:
        return ("memory",) if config.over == "memory" else ()

    @classmethod
    def states(cls, config: LinformerAttentionConfig) -> Mapping[str, str]:
        return {"k": "B G N D", "v": "B G N D"}

    @classmethod
    def cost(cls, config: LinformerAttentionConfig, shape: Shape) -> Cost:
        C, D, K = config.dim, config.dim // config.heads, config.slots
        states = shape.batch * config.heads
        numbers = config.matrices * K * config.length
        slots = 2 * shape.batch * K * config.groups * D
        return (
            linear(shape, C, C, bias=config.bias)
            + _keys_and_values(config, shape)
            + matmul(shape.length, D, 2 * K, count=states)
            + kept(shape, shape.rows * (2 * C + config.heads))
            + linear(shape, C, C, bias=config.bias)
            + (common(config.layerwise, numbers) if config.sharing == "layerwise" else Cost(parameters=numbers))
            + Cost(state_bytes=slots * shape.element_bytes if config.over == "memory" else 0)
        )


def _keys_and_values(config: LinformerAttentionConfig, shape: Shape) -> Cost:
    """The keys and values of the slots, after the queries."""
    C, K, B = config.dim, config.slots, shape.batch
    maps, width = len(config.widths) - 1, config.widths[1]
    S = shape.length if config.over == "self" else shape.memory
    cost = Cost(parameters=maps * (C * width + (width if config.bias else 0)))
    if config.over == "memory":
        cost += kept(shape, B * S * C)  # the memory; the queries keep x
    if config.sharing == "none":
        products = matmul(K, S, C // config.heads, count=2 * B * config.groups)
        return cost + matmul(B * S, C, maps * width) + products + kept(shape, 2 * B * (S + K) * width)
    mixed = config.matrices
    slots = matmul(K, S, C, count=mixed * B) + matmul(B * K, C, width, count=2)
    biases = matmul(K, S, 1, count=2, backward=1) if config.bias else Cost()
    return cost + slots + biases + kept(shape, mixed * B * K * C + 2 * B * K * width)
