"""Adaptive attention span: each head learns how far back it reads, up to S positions, with a soft mask.

Formula: a_ij = m(x) e_ij / sum_j m(x) e_ij, e_ij = exp(q_i (k_j + p_x) / sqrt(D)), x = i - j - 1, m(x) = clamp((R + z
- x) / R, 0, 1)

Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers", https://arxiv.org/abs/1905.07799, section 2.2.
Position i reads the positions x = i - j - 1 = 0, .., S - 1, but not itself. p is one table [S, D] for all heads and
layers. The loss gets lambda times the mean of z. The span z is S times a learned ratio per head, or, if dynamic, S
sigmoid(v x_i + b). The block reads only the past, in an encoder too. Its position encoding is p, so rotary positions
and ALiBi have no effect.

The softmax over the positions within the span is multiplied by the mask and divided by its sum plus 1e-8. The released
code (facebookresearch/adaptive-span) takes the softmax over all S positions first: `softmax: reach`. The difference
matters only if nearly all of its weight is beyond the span.

A ratio must be in [0, 1]. The paper clamps it after every optimiser step; here it is clamped at the start of the next
forward pass in training. The gradient is not changed, so a gradient that points back inside takes effect immediately.

Positions before the first one are left out, so that a sequence gives the same results alone and after padding. The
released code puts S states of zeros there, which queries read through the vectors p alone: `before: zeros`. B batch, T
time, H heads, D width of one head, S longest span, R ramp, C = H * D model width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.dispatch.precision import without_autocast
from kernels.sparse_attention.span_attention import span_attention, span_tiling
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, common, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.sharing import shared


@dataclass(frozen=True, kw_only=True)
class AdaptiveSpanAttentionConfig:
    """`span`: S, the longest span.
    `ramp`: R, number of positions over which the mask falls from one to zero.
    `span_weight`: lambda, the weight of the mean span in the loss.
    `initial`: the initial ratio of a span to S; dynamic spans start no closer to 0 or 1 than sigmoid(-4).
    `dynamic`: whether the span depends on the position: S sigmoid(v x_i + b).
    `softmax`: which positions the softmax covers: those within the span (span), or all S, as in the released code
    (reach).
    `before`: what precedes the first position: nothing, or S states of zeros, as in the released code (zeros).

    Raises ValueError if heads does not divide dim, the span or ramp is below 1, the weight is negative, or a
    probability is not in its range.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    span: int = 32
    ramp: int = 8
    span_weight: float = 2e-6
    initial: float = 0.0
    dynamic: bool = False
    softmax: Literal["span", "reach"] = "span"
    before: Literal["nothing", "zeros"] = "nothing"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        at_least(1, span=self.span, ramp=self.ramp)
        probability(below_one=False, initial=self.initial)
        probability(dropout=self.dropout)
        if not self.span_weight >= 0:
            raise ValueError(f"span_weight must be at least 0, but got {self.span_weight}.")

    @property
    def table(self) -> tuple[str, int, int]:
        """The key of the vectors p: layers share them if their keys are equal."""
        return ("adaptive_span_attention", self.span, self.dim // self.heads)


@primitive(
    "adaptive_span_attention",
    AdaptiveSpanAttentionConfig,
    published=Published(
        paper={"the ratio is clamped before the next forward pass instead of after the step": ""},
        code=("facebookresearch/adaptive-span",),
        released={
            "the softmax is over all S positions, and the mask is applied afterwards": "softmax: reach",
            "S states of zeros precede the first position": "before: zeros",
        },
    ),
)
class AdaptiveSpanAttention(Primitive):
    """Attention with a learned span. Streaming keeps the keys and values of the last S positions.

    Without gradients, spans that are known in advance reduce the work to the largest z + R, with the same results. The
    state still keeps S positions, so its size equals the declared cost.
    """

    capabilities = Capabilities(bidirectional=False)

    def __init__(self, config: AdaptiveSpanAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.output = nn.Linear(config.dim, config.dim, bias=False)
        self.places = shared(config.table, lambda: nn.Parameter(torch.randn(config.span, config.dim // config.heads)))
        if config.dynamic:
            self.spans = nn.Linear(config.dim, config.heads)
            nn.init.constant_(self.spans.bias, _logit(config.initial))
        else:
            self.ratios = nn.Parameter(torch.full((config.heads, 1), config.initial))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        config = self.config
        slot = context.slot(self, causal=config.causal)
        q, k, v = (split(part, config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        z = self._spans(x)
        mean = self._mean(z, context.padding)
        context.report("attention_span", mean)
        if self.training:
            context.add_loss("attention_span", config.span_weight * mean)
        if slot is not None:
            k, v = _remember(slot, "k", k, config.span), _remember(slot, "v", v, config.span)
        out = span_attention(
            q,
            k,
            v,
            self.places[: self._width(z)],
            z,
            ramp=config.ramp,
            zeros=config.before == "zeros",
            reach=config.softmax == "reach",
            keys=context.padding,
            dropout=config.dropout if self.training else 0.0,
        )
        return self.output(merge(out))

    def _spans(self, x: Tensor) -> Tensor:
        """z in positions, float32 or wider: [H, 1], or [B, H, T] if dynamic."""
        wide = torch.promote_types(x.dtype, torch.float32)
        if self.config.dynamic:
            with without_autocast(x.device.type):  # rounding would shift a span by positions
                ratios = F.linear(x.to(wide), self.spans.weight.to(wide), self.spans.bias.to(wide)).sigmoid()
            return self.config.span * ratios.transpose(1, 2)
        if not self.training:
            return self.config.span * self.ratios.to(wide).clamp(0, 1)
        with torch.no_grad():
            self.ratios.clamp_(0, 1)
        return self.config.span * self.ratios.to(wide)

    def _mean(self, z: Tensor, padding: Tensor | None) -> Tensor:
        """The mean span over the heads, and over the real positions if each position has its own."""
        if padding is None or not self.config.dynamic:
            return z.mean()
        return (z.mean(1) * padding).sum() / padding.sum().clamp(min=1)

    def _width(self, z: Tensor) -> int:
        """The number of distances that any head may read. It is S unless a smaller number is known without
        extra cost.
        """
        if self.config.softmax == "reach":
            return self.config.span
        if self.config.dynamic or self.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.config.span
        return min(self.config.span, math.ceil(float(z.max())) + self.config.ramp)

    @classmethod
    def states(cls, config: AdaptiveSpanAttentionConfig) -> Mapping[str, str]:
        return {"k": "B H W D", "v": "B H W D"}

    @classmethod
    def cost(cls, config: AdaptiveSpanAttentionConfig, shape: Shape) -> Cost:
        """All S distances count, read or not. Scores are counted tile by tile; each tile has its own copy
        of its keys.
        """
        C, D, T = config.dim, config.dim // config.heads, shape.length
        tiles = span_tiling(T, T, config.span, zeros=config.before == "zeros")
        stretches = shape.batch * config.heads * tiles.count
        rows, W, K = stretches * tiles.rows, tiles.width, tiles.columns
        held = 2 * shape.batch * min(T, config.span) * C if config.causal else 0
        spans = Cost(parameters=config.heads)
        if config.dynamic:  # the masks of all positions differ
            ratios = linear(shape, C, config.heads) + kept(shape, -shape.rows * C)  # x is already kept
            spans = ratios + kept(shape, 2 * rows * W) + Cost(activation_bytes=rows * W)
        return (
            linear(shape, C, 3 * C, bias=False)
            + spans
            + matmul(tiles.rows, D, K, count=2 * stretches)
            + matmul(rows, D, W)
            + kept(shape, rows * (2 * D + 1 + W + K) + 2 * stretches * K * D)
            + Cost(activation_bytes=tiles.count * tiles.rows * W)  # the mask of existing keys
            + linear(shape, C, C, bias=False)
            + common(config.table, config.span * D)
            + Cost(state_bytes=held * shape.element_bytes)
        )


def _remember(slot: dict[str, Tensor], name: str, new: Tensor, span: int) -> Tensor:
    """The keys (or values) that the new positions may read. The slot keeps those that later positions may read."""
    near = torch.cat([slot[name], new], dim=2) if name in slot else new
    length = min(near.shape[2], span)
    # A copy, because a slice would keep the whole piece in memory.
    slot[name] = near.narrow(2, near.shape[2] - length, length).clone()
    return near


def _logit(ratio: float) -> float:
    return min(4.0, max(-4.0, torch.logit(torch.tensor(ratio, dtype=torch.float64, device="cpu")).item()))
