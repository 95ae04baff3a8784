"""Nystrom attention: the softmax matrix is approximated from a few landmarks, so the cost grows as T.

Formula: F A^+ (B V), F = softmax(Q K'^T s), A = softmax(Q' K'^T s), B = softmax(Q' K^T s), s = D^-1/2

Xiong et al. 2021, "Nystromformer", https://arxiv.org/abs/2102.03902, eq. 13-14. The landmarks Q' and K' are means of
contiguous segments. The pseudoinverse A^+ is computed by an iteration that starts from A^T / |A|_1, per matrix. A
depthwise convolution of V is added to the result.

If M does not divide the length, "balanced" makes the segments as equal as possible. "padded" gives all segments except
the last one the same length, as if the end were padded to a multiple of M, and drops empty landmarks. Only real
positions count, so padding has no effect. In a sequence of at most M positions each is its own landmark, and the
formula equals full attention, F A^+ B = A A^+ A = A. The iteration approximates it; `exact: true` computes it.

The released code (mlpen/Nystromformer, transformers) starts the iteration from one maximum over the batch and all
heads, which couples samples (`coupled: true`), and padding counts for its landmarks. In transformers padding is hidden
only in the softmax of B (`padding_counts: true`; `released: true` is both). In mlpen/Nystromformer queries and keys of
padding are zeros, and the convolution does not read its values (`padding_counts: zeros`). Both are exact if the length
is M.

lucidrains/nystrom-attention puts zeros before a sequence up to a multiple of M. They count as positions, or as padding
if there is a mask: `segments: front`. It is coupled too. Only its output has a bias, which has no option here.

Rotary positions and ALiBi have no effect, because there are no scores of pairs. B batch, T time, H heads, D width of
one head, M landmarks, C = H * D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.convolution.lightweight_convolution import lightweight_convolution
from kernels.dispatch.precision import without_autocast
from searchspace.checks import at_least
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class NystromAttentionConfig:
    """`landmarks`: M, number of landmarks.
    `iterations`: number of iterations for the pseudoinverse.
    `kernel`: number of taps (odd) of the depthwise convolution of the values; 0 for no convolution.
    `segments`: how segments are formed if M does not divide the length; front puts zeros before the sequence.
    `coupled`: whether the iteration starts from one maximum over the batch and all heads, as in the released code.
    `padding_counts`: whether landmarks are means over padding too, as in the released code: with the queries and keys
    of the padding (true), or with zeros in their place (zeros).
    `released`: sets `coupled: true` and `padding_counts: true`.
    `exact`: whether sequences of at most M positions get full attention.

    Raises ValueError if heads does not divide dim, there are no landmarks or iterations, the kernel is even and not 0,
    exact is set with segments front, or released with padding_counts zeros.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    landmarks: int = 64
    iterations: int = 6
    kernel: int = 33
    segments: Literal["balanced", "padded", "front"] = "balanced"
    coupled: bool = False
    padding_counts: Literal[False, True, "zeros"] = False
    released: bool = False
    exact: bool = False
    bias: bool = False

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        at_least(1, landmarks=self.landmarks, iterations=self.iterations)
        at_least(0, kernel=self.kernel)
        if self.kernel and self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, or 0 for no convolution, but got {self.kernel}.")
        if self.exact and self.segments == "front":
            raise ValueError("exact needs segments balanced or padded, but segments is front.")
        if self.released and self.padding_counts == "zeros":
            raise ValueError("released sets padding_counts to true, but it is zeros; use coupled instead of released.")

    @property
    def hides_padding(self) -> bool:
        """Whether padding after the end leaves the results of real positions unchanged."""
        return not (self.released or self.coupled or self.padding_counts or self.segments == "front")

    def used(self, length: int) -> int:
        """The number of landmarks of a sequence with `length` positions."""
        if self.segments == "front":
            return self.landmarks
        most = min(self.landmarks, length)
        return most if self.segments == "balanced" else -(-length // -(-length // most))

    def zeros(self, length: int) -> int:
        """The number of zeros before a sequence with `length` positions."""
        return -length % self.landmarks if self.segments == "front" else 0


@primitive(
    "nystrom_attention",
    NystromAttentionConfig,
    published=Published(
        code=("mlpen/Nystromformer", "transformers"),
        released={
            "the iteration starts from one maximum over the batch and all heads": "coupled: true",
            "transformers: landmarks are means over padding too": "padding_counts: true",
            "mlpen: landmarks are means over padding too, with zeros as its queries and keys": "padding_counts: zeros",
            "full attention if the length equals the number of landmarks": "exact: true",
            "lucidrains/nystrom-attention starts from one maximum, and puts zeros that count before the sequence": (
                "coupled: true, segments: front"
            ),
            "lucidrains/nystrom-attention has a bias in the output only": "",
        },
    ),
)
class NystromAttention(Primitive):
    """Attention through landmarks of the whole sequence. It is always bidirectional."""

    capabilities = Capabilities(causal=False, streaming=False)

    def __init__(self, config: NystromAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        bound = max(1, config.kernel) ** -0.5
        taps = torch.empty(config.heads, 1, config.kernel, 1).uniform_(-bound, bound)
        self.taps = nn.Parameter(taps) if config.kernel else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if the context is streaming."""
        context.slot(self, causal=False)
        projected = self.query_key_value(x)
        wide = torch.promote_types(projected.dtype, torch.float32)
        # The iteration would magnify rounding errors of half precision.
        with without_autocast(x.device.type):
            zeros, padding = self.config.zeros(x.shape[1]), context.padding
            if zeros:
                projected = F.pad(projected, (0, 0, zeros, 0))
                padding = None if padding is None else F.pad(padding, (zeros, 0), value=False)
            out = self._attend(projected.to(wide), padding)[:, :, zeros:]
        return self.output(merge(out.to(projected.dtype)))

    def _attend(self, projected: Tensor, padding: Tensor | None) -> Tensor:
        """projected: [B, T, 3 C], queries, keys and values -> [B, H, T, D]."""
        C, H, T = self.config.dim, self.config.heads, projected.shape[1]
        counts = self.config.released or bool(self.config.padding_counts)
        if padding is not None and self.config.padding_counts == "zeros":
            projected = projected.masked_fill(~padding[:, :, None], 0)
        q, k, v = (split(part, H) for part in projected.chunk(3, dim=2))
        if padding is not None and not counts:
            v = v.masked_fill(~padding[:, None, :, None], 0)
        scale = q.shape[3] ** -0.5
        if self.config.exact and self.config.landmarks >= T:  # each position is its own landmark
            return self._with_neighbours(_softmax(q @ (k * scale).transpose(2, 3), padding) @ v, v)
        means, real = self._segments(projected, None if counts else padding)
        landmarks = means @ projected[:, :, : 2 * C]  # [B, M, 2 C]
        Ql, Kl = (split(part, H) for part in landmarks.chunk(2, dim=2))
        Ql, Kl = Ql * scale, Kl.transpose(2, 3)  # landmarks are scaled, not positions: there are fewer
        read_by = _softmax(q @ (Kl * scale), real)
        A = _softmax(Ql @ Kl, real)
        if real is not None:
            A = A * real[:, None, :, None]
        B = _softmax(Ql @ k.transpose(2, 3), padding)
        read = pseudo_inverse(A, self.config.iterations, coupled=self.config.released or self.config.coupled) @ (B @ v)
        if self.config.exact and padding is not None and not counts:
            short = padding.sum(1) <= means.shape[1]
            read = torch.where(short[:, None, None, None], means[:, None] @ v, read)
        return self._with_neighbours(read_by @ read, v)

    def _with_neighbours(self, out: Tensor, v: Tensor) -> Tensor:
        """out plus the depthwise convolution of the values; all [B, H, T, D]."""
        if self.taps is None:
            return out
        # Padded explicitly: with `padding` of conv2d, gradients write out of bounds if the taps are longer than x.
        around = F.pad(merge(v), (0, 0, self.config.kernel // 2, self.config.kernel // 2))
        return out + split(lightweight_convolution(around, self.taps.to(v.dtype).flatten(1)), self.config.heads)

    def _segments(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The matrices that average the segments, [B or 1, M, T], and a mask of the segments that are not empty, [B,
        M].
        """
        T = x.shape[1]
        M = self.config.used(T) if padding is None else min(self.config.landmarks, T)
        numbers = torch.arange(M, device=x.device)
        if padding is None:
            segment = self._segment(torch.arange(T, device=x.device)[None], M, T)
            member = segment[:, None, :] == numbers[:, None]
        elif self.config.segments == "front":  # segments of the whole row; only its real positions count
            segment = self._segment(torch.arange(T, device=x.device)[None], M, T)
            member = (segment[:, None, :] == numbers[:, None]) & padding[:, None, :]
        else:
            rank, count = padding.cumsum(1) - 1, padding.sum(1, keepdim=True).clamp(min=1)
            segment = self._segment(rank, M, count)
            member = (segment[:, None, :] == numbers[:, None]) & padding[:, None, :]
        sizes = member.sum(2, keepdim=True)
        return member.to(x.dtype) / sizes.clamp(min=1), None if padding is None else sizes[:, :, 0] > 0

    def _segment(self, rank: Tensor, landmarks: int, count: Any) -> Tensor:
        """The landmark of each of `count` positions."""
        if self.config.segments == "balanced":
            return rank * landmarks // count
        return rank // -(-count // landmarks)

    @classmethod
    def cost(cls, config: NystromAttentionConfig, shape: Shape) -> Cost:
        C, D, T = config.dim, config.dim // config.heads, shape.length + config.zeros(shape.length)
        M, states = config.used(T), shape.batch * config.heads
        around = shape.batch * (T + config.kernel - 1) * C + C * config.kernel if config.kernel else 0  # for the taps
        outside = (
            linear(shape, C, 3 * C, bias=config.bias)
            + matmul(shape.batch * T, config.kernel, C)
            + kept(shape, around)
            + linear(shape, C, C, bias=config.bias)
            + Cost(parameters=config.heads * config.kernel)
        )
        if config.exact and config.landmarks >= T:
            return outside + matmul(T, D, 2 * T, count=states) + kept(shape, states * T * (T + 4 * D))
        numbers = states * (T * (2 * M + 4 * D) + M * (4 * D + M * (6 * config.iterations + 2))) + M * T
        return (
            outside
            + matmul(M, T, 2 * C, count=shape.batch, backward=1)
            + matmul(T, D, 4 * M, count=states)
            + matmul(M, D, 2 * M, count=states)
            + matmul(M, M, M, count=4 * config.iterations * states)
            + kept(shape, numbers)
        )


def _softmax(scores: Tensor, columns: Tensor | None) -> Tensor:
    """scores: [B, H, R, N] -> softmax over N where `columns` [B, N] is True; zeros in rows without any."""
    if columns is None:
        return scores.softmax(3)
    allowed = columns[:, None, None, :]
    # A row without columns reads all of them and is then set to zero, so that no gradient becomes NaN.
    empty = ~allowed.any(3, keepdim=True)
    return scores.masked_fill(~(allowed | empty), -math.inf).softmax(3).masked_fill(empty, 0)


def pseudo_inverse(A: Tensor, iterations: int, *, coupled: bool = False) -> Tensor:
    """An approximate Moore-Penrose inverse of softmax matrices [.., M, M], by the paper's iteration of third order.

    |A|_inf, the largest sum of a row, is 1. |A|_1 is the largest sum of a column of each matrix. If `coupled`, all
    matrices use the largest |A|_1.
    """
    largest = A.sum(-2).amax() if coupled else A.sum(-2).amax(-1)[..., None, None]
    Z = A.transpose(-2, -1) / torch.where(largest > 0, largest, 1)
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    for _ in range(iterations):
        AZ = A @ Z
        Z = Z @ (13 * identity - AZ @ (15 * identity - AZ @ (7 * identity - AZ))) / 4
    return Z
