"""Long-short attention: each position reads a window of positions and a few vectors that compress the whole sequence.

Formula: softmax(Q [K; Kc]^T / sqrt(D)) [V; Vc], Kc = LN_c(P^T K), P = softmax(x W_P), K of the window

Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, section 3. Per head, P is the softmax over
the positions of x W_P, [T, S]. The compressed keys and values are P^T K and P^T V. The paper also has a bias of W_P,
but the softmax cancels it. The sequence is cut into segments of W positions. A query reads its own segment with W / 2
positions on each side and the compressed keys, under one softmax.

The paper uses two norms to bring both kinds of keys to one scale. Each is over the full width and is applied to keys
and values alike. "chained", as in its code for this block: K = LN_w(x Wk) and Kc = LN_c(P^T K). "apart", as in its code
for language models: Kc = LN_c(P^T x Wk). "none": no norms.

With `class_token`, position 0 is a class token as in the authors' code for the Long Range Arena. All positions read its
key and value with the compressed ones, with their norm. It reads itself, without a norm, and the results of the
others: softmax(q0 . [k0; C]) [v0; C], C = the results before the output map. It is in no window and not compressed. The
authors' code for images normalises its key and value with the norm of the window instead.

With `one_map`, keys and values are equal. With `head_norms`, each head is normalised alone. lucidrains/
long-short-transformer has both.

The compressed keys have no position, so positions must be added to the input: rotary positions and ALiBi have no
effect. A padded position is neither compressed nor in a window, and its result is zero. The causal form is
`causal_long_short_attention`. B batch, T time, W window, S slots, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from kernels.sparse_attention.long_short_attention import long_short_attention, segments
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.sparse_attention.dynamic_projection import (
    DynamicProjection,
    Norms,
    keys_and_values,
    norm_widths,
    normed,
    projection_cost,
)
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LongShortAttentionConfig:
    """`slots`: S, number of vectors per head that the sequence is compressed into.
    `window`: W, number of positions in a segment.
    `norms`: how the two LayerNorms of keys and values are applied: one after the other (chained), separately (apart),
    or not at all (none).
    `head_norms`: whether each head is normalised alone, with the same gain for all heads, instead of the full width.
    `one_map`: whether one linear map gives keys and values, so that they are equal.
    `class_token`: whether position 0 is a class token that all positions read.

    Raises ValueError if heads does not divide dim, there are no slots, the window is odd or below 2, or the dropout is
    not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    slots: int = 8
    window: int = 32
    norms: Norms = "chained"
    head_norms: bool = False
    one_map: bool = False
    class_token: bool = False
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        at_least(1, slots=self.slots)
        if self.window < 2 or self.window % 2:
            raise ValueError(f"window must be even, with half of it on each side, but got {self.window}.")

    @property
    def parts(self) -> int:
        """How many maps of width C give keys and values."""
        return 1 if self.one_map else 2


@primitive(
    "long_short_attention",
    LongShortAttentionConfig,
    published=Published(
        code=("NVIDIA/transformer-ls", "lucidrains/long-short-transformer"),
        released={
            "a class token that all positions read and that is in no window": "class_token: true",
            "the code for images has two-dimensional windows, and normalises the class token with their norm": "",
            "a depthwise convolution of the values may be added": "",
            "lucidrains has one map for keys and values, and norms of single heads": "one_map: true, head_norms: true",
            "lucidrains has rotary positions and whole windows, and computes P from keys and values": "",
        },
    ),
)
class LongShortAttention(Primitive):
    """Attention over a window and a summary of the whole sequence. It is always bidirectional."""

    capabilities = Capabilities(causal=False, streaming=False)

    def __init__(self, config: LongShortAttentionConfig) -> None:
        super().__init__()
        self.config = config
        C = config.dim
        self.query = nn.Linear(C, C, bias=config.bias)
        self.key_value = nn.Linear(C, config.parts * C, bias=config.bias)
        self.projection = DynamicProjection(C, config.heads, config.slots)
        width, _ = norm_widths(C, config.heads, per_head=config.head_norms)
        self.near_norm, self.far_norm = (None if config.norms == "none" else nn.LayerNorm(width) for _ in range(2))
        self.output = nn.Linear(C, C, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if the context is streaming."""
        context.slot(self, causal=False)
        q, both = split(self.query(x), self.config.heads), self.key_value(x)
        read = self._with_class if self.config.class_token else self._positions
        out = read(q, both, x, context.padding)
        if context.padding is not None:
            out = out.masked_fill(~context.padding[:, None, :, None], 0)
        return self.output(merge(out))

    def _positions(
        self, q: Tensor, both: Tensor, x: Tensor, padding: Tensor | None, first: Tensor | None = None,
        first_real: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """q: [B, H, T, D], both: the keys and values of x: [B, T, C] -> [B, H, T, D].

        first: keys and values of the class token, [B, 1, ..], that is read with the compressed ones where `first_real`,
        [B, 1], is True.
        """
        config, far_real = self.config, None
        near = normed(self.near_norm, both)
        source = near if config.norms == "chained" else both
        far = self.projection(source[:, None], self.projection.logits(x)[:, None], padding=padding)
        if first is not None:
            far = torch.cat([first, far], dim=1)
            if padding is not None and first_real is not None:
                far_real = torch.cat([first_real, padding.any(1, keepdim=True).expand(-1, config.slots)], dim=1)
        far = normed(self.far_norm, far)
        k, v, far_k, far_v = (
            split(y, config.heads) for part in (near, far) for y in keys_and_values(part, shared=config.one_map)
        )
        dropout = config.dropout if self.training else 0.0
        return long_short_attention(
            q, k, v, far_k, far_v, window=config.window, keys=padding, far=far_real, dropout=dropout
        )

    def _with_class(self, q: Tensor, both: Tensor, x: Tensor, padding: Tensor | None) -> Tensor:
        """The same if position 0 is a class token."""
        first = both[:, :1]
        k, v = (split(y, self.config.heads) for y in keys_and_values(first, shared=self.config.one_map))
        others = q[:, :, 1:]
        if x.shape[1] > 1:
            real = (None, None) if padding is None else (padding[:, 1:], padding[:, :1])
            others = self._positions(others, both[:, 1:], x[:, 1:], real[0], first, real[1])
        scores = q[:, :, :1] @ torch.cat([k, others], dim=2).transpose(2, 3) * q.shape[3] ** -0.5
        if padding is not None:
            scores = scores.masked_fill(~padding[:, None, None], torch.finfo(scores.dtype).min)
        own = scores.softmax(3).to(v.dtype) @ torch.cat([v, others], dim=2)
        return torch.cat([own, others], dim=2)

    @classmethod
    def cost(cls, config: LongShortAttentionConfig, shape: Shape) -> Cost:
        C, H, S, P = config.dim, config.heads, config.slots, config.parts
        width, stretches = norm_widths(C, H, per_head=config.head_norms)
        norms = 0 if config.norms == "none" else 2
        statistics = 2 * P * stretches if norms and config.head_norms else 0  # means and scales
        parameters = Cost(parameters=C * H * S + norms * 2 * width)
        maps = linear(shape, C, (1 + P) * C, bias=config.bias) + linear(shape, C, C, bias=config.bias) + parameters
        if not config.class_token:
            return maps + _reading_cost(config, shape, S, statistics)
        own = matmul(1, C // H, 2 * shape.length, count=shape.batch * H)
        held = kept(shape, shape.batch * (2 * shape.length * C + 2 * H * shape.length) + shape.rows * C)
        if shape.length == 1:
            return maps + own + held
        rest = replace(shape, length=shape.length - 1)
        return maps + own + held + _reading_cost(config, rest, S + 1, statistics)


def _reading_cost(config: LongShortAttentionConfig, shape: Shape, vectors: int, statistics: int) -> Cost:
    """The cost of compressing and reading, without parameters. vectors: number of vectors that all positions read."""
    C, H, P = config.dim, config.heads, config.parts
    cut, norms = segments(shape.length, config.window), 0 if config.norms == "none" else 2
    tiles, columns = shape.batch * cut.count, vectors + cut.columns
    return (
        projection_cost(C, H, config.slots, shape, chunks=1, length=shape.length, width=P * C)
        + matmul(cut.rows, C // H, 2 * columns, count=tiles * H)
        + kept(shape, tiles * (cut.rows * (2 * C + H) + columns * 2 * C))
        + kept(shape, norms * P * C // 2 * (shape.rows + shape.batch * vectors))
        + Cost(activation_bytes=4 * statistics * (shape.rows + shape.batch * vectors))
    )
