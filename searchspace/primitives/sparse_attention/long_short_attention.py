"""Long-short attention: each position reads a window of positions and a few vectors that compress the whole sequence.

Formula: softmax(Q [K; Kc]^T / sqrt(D)) [V; Vc], Kc = LN_c(P^T K), P = softmax(x W_P), K of the window

Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, section 3. Per head, P is the softmax over
the positions of x W_P, [T, S]. The compressed keys and values are P^T K and P^T V. The paper also has a bias of W_P,
but the softmax cancels it. The sequence is cut into segments of W positions. A query reads its own segment with W / 2
positions on each side and the compressed keys, under one softmax.

The paper uses two norms to bring both kinds of keys to one scale. Each is over the full width and is applied to keys
and values alike. "chained", as in its code for this block: K = LN_w(x Wk) and Kc = LN_c(P^T K). "apart", as in its code
for language models: Kc = LN_c(P^T x Wk). "none": no norms.

The compressed keys have no position, so positions must be added to the input: rotary positions and ALiBi have no
effect. A padded position is neither compressed nor in a window, and its result is zero. The causal form is
`causal_long_short_attention`. B batch, T time, W window, S slots, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from kernels.sparse_attention.long_short_attention import long_short_attention, segments
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.sparse_attention.dynamic_projection import (
    DynamicProjection,
    Norms,
    normed,
    projection_cost,
)
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LongShortAttentionConfig:
    """`slots`: S, number of vectors per head that the sequence is compressed into.
    `window`: W, number of positions in a segment.
    `norms`: the two LayerNorms of keys and values: one after the other (chained), apart, or none.

    Raises ValueError if heads does not divide dim, there are no slots, the window is odd or below 2, or the dropout is
    not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    slots: int = 8
    window: int = 32
    norms: Norms = "chained"
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        at_least(1, slots=self.slots)
        if self.window < 2 or self.window % 2:
            raise ValueError(f"window must be even, with half of it on each side, but got {self.window}.")


@primitive("long_short_attention", LongShortAttentionConfig)
class LongShortAttention(Primitive):
    """Attention over a window and a summary of the whole sequence. It is always bidirectional."""

    capabilities = Capabilities(causal=False, streaming=False)

    def __init__(self, config: LongShortAttentionConfig) -> None:
        super().__init__()
        self.config = config
        C = config.dim
        self.query = nn.Linear(C, C, bias=config.bias)
        self.key_value = nn.Linear(C, 2 * C, bias=config.bias)
        self.projection = DynamicProjection(C, config.heads, config.slots)
        self.near_norm, self.far_norm = (None if config.norms == "none" else nn.LayerNorm(C) for _ in range(2))
        self.output = nn.Linear(C, C, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if the context is streaming."""
        context.slot(causal=False)
        config, padding = self.config, context.padding
        both = self.key_value(x)
        near = normed(self.near_norm, both)
        source = near if config.norms == "chained" else both
        far = self.projection(source[:, None], self.projection.logits(x)[:, None], padding=padding)
        k, v, far_k, far_v = (
            split(half, config.heads) for part in (near, normed(self.far_norm, far)) for half in part.chunk(2, dim=2)
        )
        out = long_short_attention(
            split(self.query(x), config.heads),
            k,
            v,
            far_k,
            far_v,
            window=config.window,
            keys=padding,
            dropout=config.dropout if self.training else 0.0,
        )
        if padding is not None:
            out = out.masked_fill(~padding[:, None, :, None], 0)
        return self.output(merge(out))

    @classmethod
    def cost(cls, config: LongShortAttentionConfig, shape: Shape) -> Cost:
        C, H, S, T = config.dim, config.heads, config.slots, shape.length
        cut = segments(T, config.window)
        tiles, columns = shape.batch * cut.count, S + cut.columns
        norms = 0 if config.norms == "none" else 2
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + projection_cost(C, H, S, shape, chunks=1, length=T, width=2 * C)
            + matmul(cut.rows, C // H, 2 * columns, count=tiles * H)
            + kept(shape, tiles * (cut.rows * (2 * C + H) + columns * 2 * C))
            + kept(shape, norms * C * (shape.rows + shape.batch * S))
            + linear(shape, C, C, bias=config.bias)
            + Cost(parameters=C * H * S + norms * 2 * C)
        )
