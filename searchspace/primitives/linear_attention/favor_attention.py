"""FAVOR+ attention (Performer): random positive features approximate the softmax, so the cost grows as T.

Formula: exp(q k / sqrt(D)) = E[phi(q) phi(k)], phi(x) = M^-1/2 exp(W x' - |x'|^2 / 2), x' = x / D^(1/4)

Choromanski et al. 2021, "Rethinking Attention with Performers", https://arxiv.org/abs/2009.14794, sections 2.2-2.4. The
sums are those of linear attention, and M^-1/2 cancels. The block computes phi(x) = exp(W x' - |x'|^2 / 2 - c) +
epsilon. For a query, c is its largest exponent. For keys, c is the largest exponent of all keys that the query may
read; if causal, this is a running maximum.

The released code (google-research/performer, also lucidrains/performer-pytorch) takes c before |x'|^2 / 2 is
subtracted: the largest of W x'. Features are then smaller, and epsilon weighs more: `stabiliser: products`. With this
option, weights trained there give the same results if the block is bidirectional. If causal, the released code takes
the maximum of the whole sequence and so looks ahead; here it is the running maximum in both forms.

With the kernel "relu", phi(x) = relu(W x') + relu_epsilon (generalised attention). Rotary positions and ALiBi have no
effect, because there are no scores. B batch, T time, H heads, D width of one head, M random features, C = H * D.
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
from kernels.linear_attention.decayed_linear_attention import decayed_linear_attention
from kernels.linear_attention.favor_features import favor_features
from kernels.linear_attention.linear_attention import chunks
from searchspace.checks import at_least
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.linear_attention.random_features import gaussian_rows, orthogonal_rows
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.sharing import numbered

# The maximum if there is no key: smaller than every exponent, but finite.
NOTHING = -1e30
# Used if epsilon is 0. If all features vanish, 0 / 0 would follow. The square of this number is above 0 in float32.
SMALLEST = 1e-15
# exp(-200) is zero in float32 and negligible next to 1 in float64; a larger jump would lose digits.
FORGOTTEN = -200.0


@dataclass(frozen=True, kw_only=True)
class FavorAttentionConfig:
    """`features`: M, number of random features.
    `kernel`: the kernel that the features approximate.
    `orthogonal`: whether the random vectors are orthogonal.
    `epsilon`: number that is added to every feature of the kernel softmax; 0 means 1e-15.
    `relu_epsilon`: number that is added to every feature of the kernel relu.
    `stabiliser`: c: the largest exponent (exponents), or the largest of the products W x' alone, as in the released
    code (products).
    `redraw_every`: number of training steps between new random features; 0 never draws new ones. A step is detected by
    a change of the block's weights. If they are frozen, each forward pass in training counts as one.
    `seed`: seed of the random features; each layer of a model draws its own from it.

    Raises ValueError if heads does not divide dim, features is below 1, another number is negative, or an option of the
    other kernel is set.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    features: int = 64
    kernel: Literal["softmax", "relu"] = "softmax"
    orthogonal: bool = True
    epsilon: float = 1e-4
    relu_epsilon: float = 1e-3
    stabiliser: Literal["exponents", "products"] = "exponents"
    redraw_every: int = 0
    seed: int = 0
    bias: bool = False

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        at_least(1, features=self.features)
        at_least(0, redraw_every=self.redraw_every, seed=self.seed)
        for name, of in (("epsilon", "softmax"), ("relu_epsilon", "relu"), ("stabiliser", "softmax")):
            value, usual = getattr(self, name), type(self).__dataclass_fields__[name].default
            if name != "stabiliser" and not value >= 0:
                raise ValueError(f"{name} must be at least 0, but got {value}.")
            if value != usual and self.kernel != of:
                raise ValueError(f"{name} belongs to the kernel {of}, but the kernel is {self.kernel}.")


@primitive(
    "favor_attention",
    FavorAttentionConfig,
    published=Published(
        code=("google-research/google-research", "lucidrains/performer-pytorch"),
        released={
            "the stabiliser is the largest product W x', before |x'|^2 / 2 is subtracted": "stabiliser: products",
            "a causal block takes the maximum of the whole sequence, so it looks ahead": "",
            "features are drawn again every 1,000 steps": "redraw_every: 1000",
        },
    ),
)
class FavorAttention(Primitive):
    """Performer attention. Streaming keeps the sums and the running maximum, in float32 or wider."""

    projection: Tensor
    steps: Tensor
    seen: Tensor

    def __init__(self, config: FavorAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.layer = numbered("favor_attention")
        self.register_buffer("projection", self._draw(0))  # [M, D], the same for all heads
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        # NaN marks that no optimiser step has been seen yet: every comparison with NaN is unequal.
        self.register_buffer("seen", torch.full((config.dim,), math.nan), persistent=False)

    def _draw(self, number: int) -> Tensor:
        """Random matrix number `number` of this block, [M, D]."""
        draw = orthogonal_rows if self.config.orthogonal else gaussian_rows
        return draw(self.config.features, self.config.dim // self.config.heads, (self.config.seed, self.layer, number))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        if self.training and self.config.redraw_every:
            torch.compiler.disable(self._count)(context)  # a decorator would import the compiler with this module
        slot = context.slot(self, causal=self.config.causal)
        q, k, v = (split(part, self.config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        wide = torch.promote_types(q.dtype, torch.float32)
        # In half precision, rounding errors of the features would be magnified, and long sums would stop growing.
        with without_autocast(x.device.type):
            out = self._attend(q, k, F.pad(v.to(wide), (0, 1), value=1.0), context.padding, slot)
        return self.output(merge(out.to(v.dtype)))

    def _count(self, context: Context) -> None:
        """Count a training step if the weights have changed since the last call, and draw a new matrix if it is due.

        Within one step the block may run several times: because it is used twice in the model, is recomputed for the
        backward pass, or gradients are accumulated. The weights are then unchanged, so it uses the same matrix. Frozen
        weights never change: then each pass through the model counts.
        """
        if self.query_key_value.weight.requires_grad:
            weights = self.query_key_value.weight.detach()[0]
            if not bool((weights != self.seen).any()):
                return
            self.seen = weights.clone()
        elif not context.first_time(self):
            return
        self.steps += 1
        number, served = divmod(int(self.steps) - 1, self.config.redraw_every)
        if number and not served:
            self.projection = self._draw(number).to(self.projection)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, slot: dict[str, Tensor] | None
    ) -> Tensor:
        """q and k: [B, H, T, D], v: [B, H, T, D + 1] with ones in the last column, float32 or wider -> [B, H, T, D]."""
        if padding is not None:
            v = v * padding[:, None, :, None]  # the ones too: the key enters neither sum nor normaliser
        if self.config.kernel == "relu":
            out = self._sums(self._rectified(q, v), self._rectified(k, v), v, None, slot)
        else:
            out = self._stabilised(q, k, v, padding, slot)
        total = out[..., -1:]
        return out[..., :-1] / torch.where(total > 0, total, 1)

    def _rectified(self, x: Tensor, v: Tensor) -> Tensor:
        """x: [B, H, T, D] -> [B, H, T, M], relu(W x') + relu_epsilon in the dtype of v."""
        x = x.to(v.dtype) * x.shape[3] ** -0.25
        return F.relu(F.linear(x, self.projection.to(x.dtype))) + self.config.relu_epsilon

    def _stabilised(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, slot: dict[str, Tensor] | None
    ) -> Tensor:
        """The sums of exp(exponent - maximum) + epsilon. The epsilon of the keys adds a plain sum of the values.

        The features of each key are computed with the maximum of that key alone. Rescaling to the common maximum
        multiplies each key by a factor of at most one. The factor is applied to the values, which are smaller than the
        features.
        """
        epsilon, scale = max(self.config.epsilon, SMALLEST), q.shape[3] ** -0.25
        Q, _ = favor_features(q, self.projection, scale=scale)
        K, own = favor_features(k, self.projection, scale=scale)
        own = largest = own[..., 0]  # [B, H, T]
        if self.config.stabiliser == "products":
            Q = Q * (-_half_square(q, scale, v.dtype)).exp()[..., None]
            largest = own + _half_square(k, scale, v.dtype)
        if padding is not None:
            largest = largest.masked_fill(~padding[:, None, :], NOTHING)
        decay = None
        if self.config.causal:
            before = slot["maximum"] if slot else torch.full_like(largest[:, :, 0], NOTHING)
            maxima = running_maximum(torch.cat([before[:, :, None], largest], dim=2))
            decay = (maxima[:, :, :-1] - maxima[:, :, 1:]).clamp(min=FORGOTTEN)
            largest = maxima[:, :, 1:]
            if slot is not None:
                slot["maximum"] = largest[:, :, -1].clone()
        else:
            largest = largest.amax(2, keepdim=True)
        # A masked key may be above the maximum. Its value is zero, but infinity times zero is not.
        V = v * (own - largest).clamp(max=0).exp()[..., None]
        if not self.config.causal:
            whole = K.transpose(2, 3) @ V + epsilon * self._values(v, slot)  # [B, H, M, D + 1]
            return Q @ whole + epsilon * whole.sum(2, keepdim=True)
        Q = Q + epsilon if torch.is_grad_enabled() else Q.add_(epsilon)
        return self._sums(Q, K, V, decay, slot) + Q.sum(3, keepdim=True) * (epsilon * self._values(v, slot))

    def _sums(self, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, slot: dict[str, Tensor] | None) -> Tensor:
        if not self.config.causal:
            return q @ (k.transpose(2, 3) @ v)
        out, state = decayed_linear_attention(q, k, v, decay=decay, state=slot.get("state") if slot else None)
        if slot is not None:
            slot["state"] = state
        return out

    def _values(self, v: Tensor, slot: dict[str, Tensor] | None) -> Tensor:
        """The sum of the values that each position may read: [B, H, T, D + 1], or [B, H, 1, D + 1] if bidirectional."""
        if not self.config.causal:
            return v.sum(2, keepdim=True)
        summed = v.cumsum(2)
        if slot is not None:
            summed = summed + slot["values"] if "values" in slot else summed
            slot["values"] = summed[:, :, -1:].clone()
        return summed

    @classmethod
    def states(cls, config: FavorAttentionConfig) -> Mapping[str, str]:
        return {"state": "B H M D", "maximum": "B H", "values": "B H N D"}

    @classmethod
    def cost(cls, config: FavorAttentionConfig, shape: Shape) -> Cost:
        C, D, M = config.dim, config.dim // config.heads, config.features
        states = shape.batch * config.heads
        numbers = M * (D + 1)
        if config.kernel == "softmax":
            numbers += 1 + D + 1
        held = states * numbers * max(4, shape.element_bytes) if config.causal else 0
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + matmul(states * shape.length, D, M, count=2, backward=1)
            + _products(config, shape)
            + linear(shape, C, C, bias=config.bias)
            + Cost(state_bytes=held)
        )


def running_maximum(x: Tensor) -> Tensor:
    """x: [B, H, T] -> the largest of each position and those before it, [B, H, T]."""
    return x.cummax(2).values


def _half_square(x: Tensor, scale: float, wide: torch.dtype) -> Tensor:
    """|x'|^2 / 2: [B, H, T, D] -> [B, H, T], a constant for gradients as the maximum is."""
    return (x.detach().to(wide) * scale).square().sum(3) / 2


def _products(config: FavorAttentionConfig, shape: Shape) -> Cost:
    """The features of queries and keys, a factor per key, and their sums; the values have one more column."""
    M, D, states = config.features, config.dim // config.heads, shape.batch * config.heads
    rows = states * shape.length
    softmax = config.kernel == "softmax"
    mapped = kept(shape, M * D + rows * (2 * M + (2 * D + 1 if softmax else 0)) + rows * (D + 2))
    if config.stabiliser == "products":  # the factors of queries; epsilon makes a copy of their features if causal
        mapped += kept(shape, rows * (1 if config.causal else M + 1))
    if not config.causal:
        sums = matmul(M, shape.length, D + 1, count=states) + matmul(shape.length, M, D + 1, count=states)
        return mapped + sums + kept(shape, rows * ((0 if softmax else 2 * M) + D + 1) + states * M * (D + 1))
    N, T = chunks(shape.length)
    # The first chunk has no state before it, and the state after the last chunk is never read.
    near = matmul(T, M, T, count=states * N) + matmul(T, T, D + 1, count=states * N)
    far = matmul(M, T, D + 1, count=states * N, backward=2 if N > 1 else 0)
    far += matmul(T, M, D + 1, count=states * N, backward=2 if N > 1 else 1)
    square = T * T * (2 if softmax else 1)
    return mapped + near + far + kept(shape, states * N * (T * (2 * M + 2 * (D + 1)) + square + M * (D + 1)))
