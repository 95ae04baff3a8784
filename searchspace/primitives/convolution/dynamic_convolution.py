"""Dynamic convolution: a gate, then an average of neighbours with taps that each position computes from itself.

Formula: u = a * sigmoid(g), [a; g] = W1 x + b1, w_{i,h} = softmax_k(W_h u_i), o_{i,c} = sum_k w_{i,h,k} u_{i+k-left,c},
out = W2 o + b2

Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions", https://arxiv.org/abs/1901.10430,
section 4 and figure 2c. The gate g is the SECOND half, as in `torch.nn.functional.glu`. Channel c belongs to head h = c
// (C / H). The softmax runs over all K taps, including those beyond the ends; with `renormalise` it runs only over taps
at real positions. DropConnect (`dropout`) is applied to the normalised taps. left = K - 1 if causal, else K // 2. At
padding and beyond the ends u is zero. In ESPnet, and optionally in the authors' code (fairseq), the map W_h has a bias:
`taps_bias`. B batch, T time, H heads, K taps (`kernel`), D channels of a head, C = H * D
model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.convolution.dynamic_convolution import dynamic_convolution
from searchspace.checks import at_least, probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads
from searchspace.primitives.convolution.neighbours import TAIL, before, tail_cost, with_neighbours
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class DynamicConvolutionConfig:
    """`channel_bias`: whether each channel has a bias after the convolution.
    `taps_bias`: whether the map from a position to its taps has a bias; the paper's has none.
    `renormalise`: whether the softmax runs only over taps at real positions.

    Raises ValueError if the kernel is below 1, heads does not divide dim, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    kernel: int = 7
    heads: int = 4
    channel_bias: bool = False
    taps_bias: bool = False
    renormalise: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least(1, kernel=self.kernel)
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)


@primitive(
    "dynamic_convolution",
    DynamicConvolutionConfig,
    published=Published(
        code=("facebookresearch/fairseq", "espnet/espnet"),
        released={
            "the taps have a bias, optional in fairseq, always in ESPnet": "taps_bias: true",
            "the convolution has a bias if conv_bias is set": "channel_bias: true",
            "taps beyond the start are left out of the softmax if renorm_padding is set": "renormalise: true",
        },
    ),
)
class DynamicConvolution(Primitive):
    """Gate, taps of each position, output map. Streaming keeps the last K - 1 gated inputs, zeros before the first."""

    def __init__(self, config: DynamicConvolutionConfig) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Linear(config.dim, 2 * config.dim)
        self.taps = nn.Linear(config.dim, config.heads * config.kernel, bias=config.taps_bias)
        self.bias = nn.Parameter(torch.zeros(config.dim)) if config.channel_bias else None
        self.output = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        gated = F.glu(self.input(x), dim=2)
        padded = with_neighbours(self, gated, self.config.kernel, context, causal=self.config.causal)
        scores = self.taps(gated).unflatten(2, (self.config.heads, -1))  # [B, T, H, K]
        if self.config.renormalise:
            scores = scores.masked_fill(~self._real(x, context)[:, :, None], torch.finfo(scores.dtype).min)
        taps = scores.softmax(3)
        out = dynamic_convolution(padded, F.dropout(taps, self.config.dropout, self.training).to(padded.dtype))
        return self.output(out if self.bias is None else out + self.bias)

    def _real(self, x: Tensor, context: Context) -> Tensor:
        """[1 or B, T, K], True where a tap is at a position of the sequence that is not padding."""
        K, T = self.config.kernel, x.shape[1]
        left = before(K, causal=self.config.causal)
        if context.padding is not None:
            return F.pad(context.padding, (left, K - 1 - left)).unfold(1, K, 1)
        read = context.streams.length if context.streams else 0  # positions that came in earlier pieces
        met = torch.arange(T, device=x.device)[:, None] + torch.arange(K, device=x.device) - left
        return ((met >= -read) & (met < T))[None]

    @classmethod
    def states(cls, config: DynamicConvolutionConfig) -> Mapping[str, str]:
        return TAIL

    @classmethod
    def cost(cls, config: DynamicConvolutionConfig, shape: Shape) -> Cost:
        C, K, H = config.dim, config.kernel, config.heads
        taps = shape.rows * H * K
        real = Cost(activation_bytes=shape.rows * K if config.renormalise else 0)  # a mask of one byte per element
        drop = kept(shape, taps) + Cost(activation_bytes=taps) if config.dropout else Cost()
        return (
            linear(shape, C, 2 * C)
            + kept(shape, 2 * shape.rows * C)  # kept for the gradient of the gate
            + linear(shape, C, H * K, bias=config.taps_bias)
            + kept(shape, taps)  # kept for the gradient of the softmax
            + real
            + drop
            + matmul(shape.rows, K, C)
            + kept(shape, shape.batch * (shape.length + K - 1) * C)
            + linear(shape, C, C)
            + Cost(parameters=C if config.channel_bias else 0)
            + tail_cost(K, C, shape, causal=config.causal)
        )
