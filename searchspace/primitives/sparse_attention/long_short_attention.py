"""Long-short attention: a window of positions as they are, and vectors that the whole sequence is compressed into.

Formula: softmax(Q [K; Kc]^T / sqrt(D)) [V; Vc], Kc = LN_c(P^T K), P = softmax(x W_P), K of the window

Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, section 3. Per head, P = softmax over the
positions of x W_P, [T, S]; the compressed keys and values are P^T K and P^T V. (A bias of W_P, which the paper has,
would change no P: the softmax cancels it.) A query reads these and, in segments of W positions, its own segment with
W / 2 positions to each side, under one softmax. The paper's two norms, each over the full width and the same for keys
and values, keep both kinds at one scale: "chained", as its code does here, K = LN_w(x Wk) and Kc = LN_c(P^T K);
"apart", as its code does for language models, Kc = LN_c(P^T x Wk); "none".
B batch, T time, W window, S slots, H heads, D width of one head, C = H * D model width.

The compressed keys have no place, so positions enter with the input: rotary ones and ALiBi do not reach it. A padded
position is in no P and no window, and reads zeros. The causal form is `causal_long_short_attention`.
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
            raise ValueError(f"window must be even, half of it lies to each side, but got {self.window}.")


@primitive("long_short_attention", LongShortAttentionConfig)
class LongShortAttention(Primitive):
    """Attention over a window and a summary of the whole sequence; it looks both ways, always."""

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
