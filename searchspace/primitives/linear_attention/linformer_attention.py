"""Linformer attention: keys and values are mixed along the length into a few slots, so the cost grows as T.

Formula: softmax(Q (E K)^T / sqrt(D)) (F V)

Wang et al. 2020, "Linformer", https://arxiv.org/abs/2006.04768, eq. 7. E and F have shape [slots, length]. They are
shared as in section 4 of the paper. "none": each head has its own E and F. "headwise": one E and one F per layer.
"key_value": one matrix for both. "layerwise": one matrix for both in all layers of the model. A shorter sequence uses
the first columns. Padded keys are set to zero before E. There is no causal form, because earlier and later positions
are mixed before they are read. Rotary positions and ALiBi have no effect for the same reason. B batch, T time, N the
longest length, K slots, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.attention.attention import attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, common, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.registry import primitive
from searchspace.sharing import shared


@dataclass(frozen=True, kw_only=True)
class LinformerAttentionConfig:
    """`slots`: K, number of slots that the keys and values are mixed into.
    `length`: N, the longest sequence; E and F have one column per position.
    `sharing`: which heads and layers share E and F.

    Raises ValueError if heads does not divide dim, the length is below the number of slots, or the dropout is not a
    probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    slots: int = 64
    length: int = 512
    sharing: Literal["headwise", "none", "key_value", "layerwise"] = "headwise"
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        at_least(1, slots=self.slots)
        if self.length < self.slots:
            raise ValueError(f"length must be at least slots, but got length={self.length}, slots={self.slots}.")

    @property
    def longest(self) -> int:
        """The length of the longest sequence that it can read."""
        return self.length

    @property
    def matrices(self) -> int:
        """The number of matrices of [slots, length]."""
        return {"none": 2 * self.heads, "headwise": 2, "key_value": 1, "layerwise": 1}[self.sharing]

    @property
    def layerwise(self) -> tuple[str, int, int]:
        """The key of the matrix: layers share a matrix if their keys are equal."""
        return ("linformer_attention", self.slots, self.length)


@primitive("linformer_attention", LinformerAttentionConfig)
class LinformerAttention(Primitive):
    """Attention over slots that mix the whole sequence. It is always bidirectional."""

    capabilities = Capabilities(causal=False, streaming=False)

    def __init__(self, config: LinformerAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
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
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if T is larger than `length` or the context is streaming."""
        context.slot(causal=False)
        matrices = self._matrices(x.shape[1])
        q, K, V = (self._by_head if self.config.sharing == "none" else self._at_once)(x, matrices, context.padding)
        out = attention(split(q, self.config.heads), K, V, dropout=self.config.dropout if self.training else 0.0)
        return self.output(merge(out))

    def _at_once(self, x: Tensor, matrices: tuple[Tensor, Tensor], padding: Tensor | None) -> tuple[Tensor, ...]:
        """Queries [B, T, C], then K and V, [B, H, slots, D], if all heads share their matrices.

        E (x W) is computed as (E x) W, so only the slots are projected, not all positions. A bias is weighted by the
        sum of the slot's row.
        """
        W, b = self.query_key_value.weight.chunk(3), self.query_key_value.bias
        real = x if padding is None else x.masked_fill(~padding[:, :, None], 0)
        E, F = matrices
        mixed = E @ real
        slots = [functional.linear(mixed, W[1]), functional.linear(mixed if F is E else F @ real, W[2])]
        if b is None:
            return functional.linear(x, W[0]), *(split(slot, self.config.heads) for slot in slots)
        first, *biases = b.chunk(3)
        ones = real.new_ones(1, x.shape[1], 1) if padding is None else padding[:, :, None].to(real.dtype)
        slots = [slot + (matrix @ ones) * c for slot, matrix, c in zip(slots, matrices, biases, strict=True)]
        return functional.linear(x, W[0], first), *(split(slot, self.config.heads) for slot in slots)

    def _by_head(self, x: Tensor, matrices: tuple[Tensor, Tensor], padding: Tensor | None) -> tuple[Tensor, ...]:
        """The same if each head has its own matrices."""
        q, *parts = self.query_key_value(x).chunk(3, dim=2)
        if padding is not None:
            parts = [part.masked_fill(~padding[:, :, None], 0) for part in parts]
        return q, *(self._mixed(matrix, part) for matrix, part in zip(matrices, parts, strict=True))

    def _mixed(self, matrix: Tensor, y: Tensor) -> Tensor:
        """matrix: [H, slots, T], y: [B, T, C] -> [B, H, slots, D], without a copy of the matrix for each sequence."""
        B, T, _ = y.shape
        columns = y.view(B, T, self.config.heads, -1).permute(2, 1, 0, 3).flatten(2)  # [H, T, B * D]
        return (matrix @ columns).unflatten(2, (B, -1)).permute(2, 0, 1, 3)

    def _matrices(self, length: int) -> tuple[Tensor, Tensor]:
        """E and F, [1 or H, slots, T]; the same tensor if they share one matrix."""
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
    def cost(cls, config: LinformerAttentionConfig, shape: Shape) -> Cost:
        C, D, K = config.dim, config.dim // config.heads, config.slots
        states = shape.batch * config.heads
        numbers = config.matrices * K * config.length
        return (
            _keys_and_values(config, shape)
            + matmul(shape.length, D, 2 * K, count=states)
            + kept(shape, shape.rows * (2 * C + config.heads))
            + linear(shape, C, C, bias=config.bias)
            + (common(config.layerwise, numbers) if config.sharing == "layerwise" else Cost(parameters=numbers))
        )


def _keys_and_values(config: LinformerAttentionConfig, shape: Shape) -> Cost:
    """Queries, and the keys and values of the slots."""
    C, K, B = config.dim, config.slots, shape.batch
    if config.sharing == "none":
        products = matmul(K, shape.length, C // config.heads, count=2 * B * config.heads)
        return linear(shape, C, 3 * C, bias=config.bias) + products + kept(shape, shape.rows * 2 * C + 2 * B * K * C)
    mixed = config.matrices
    slots = matmul(K, shape.length, C, count=mixed * B) + matmul(B * K, C, C, count=2)
    biases = matmul(K, shape.length, 1, count=2, backward=1) if config.bias else Cost()
    parameters = Cost(parameters=2 * (C * C + (C if config.bias else 0)))
    return linear(shape, C, C, bias=config.bias) + parameters + slots + biases + kept(shape, (mixed + 2) * B * K * C)
