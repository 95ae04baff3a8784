"""Random feature attention: random sines and cosines approximate the softmax, so the cost grows as T.

Formula: out_i = phi(q_i) sum_j phi(k_j)^T v_j / (phi(q_i) sum_j phi(k_j)), phi(x) = M^-1/2 [sin w_m x, cos w_m x]

Peng et al. 2021, "Random Feature Attention", https://arxiv.org/abs/2103.02143, sections 3.1, 3.3. In each head, q and k
are normalised to length one, so exp(q k / tau^2) equals exp(-|q - k|^2 / 2 tau^2) up to a constant. This equals
E[phi(q) phi(k)] with w = sigma * w' / tau, w' from N(0, I) and sigma learned. With the kernel "arc_cosine", phi(x) =
M^-1/2 relu(w_m x). The estimated normaliser may be close to zero or negative; its absolute value is kept above 1e-3.
The length by which q and k are divided is kept above 1e-3 too, because the gradient of a row of zeros would be
infinite.

The released code (Noahs-ARK/RFA) divides by the length plus 1e-3, has features 0.1 [sin, cos] instead of M^-1/2 [sin,
cos], and keeps the normaliser above 1, so the first positions get less than a mean: `form: released`. Over the
encoder's output (`over: memory`, section 3.1), it divides by the absolute value of the normaliser, at least 1.

Rotary positions and ALiBi have no effect, because there are no scores. B batch, T time, H heads, D width of one head, M
random vectors, F features (2 M or M), C = H * D model width.
"""

from __future__ import annotations

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
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.over_memory import Over, check_over, memory_of
from searchspace.primitives.linear_attention.random_features import gaussian_rows
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.sharing import numbered

SMALLEST = 1e-3  # of lengths and normalisers
# With fewer vectors the normaliser is near zero so often that the output is mostly noise.
FEWEST = 8
# The factor of features and the smallest normaliser of the released code.
RELEASED_FEATURES, RELEASED_SMALLEST = 0.1, 1.0


@dataclass(frozen=True, kw_only=True)
class RandomFeatureConfig:
    """The options of both blocks, with and without a gate.

    `features`: M, number of random vectors; at least 8 in the form of the paper, or the output is mostly noise.
    `kernel`: the kernel that the features approximate.
    `form`: whether lengths, features and normalisers are those of the paper or of the released code.
    `temperature`: tau, the temperature of the softmax.
    `pool`: number of random matrices. Training picks one per head and step. Evaluation and streaming use the first.
    `seed`: seed of the random matrices; each layer of a model draws its own from it.

    Raises ValueError if heads does not divide dim, there are too few features, the pool is empty, the seed is negative,
    the temperature is not above 0, or another kernel has the released form.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    features: int = 64
    kernel: Literal["gaussian", "arc_cosine"] = "gaussian"
    form: Literal["paper", "released"] = "paper"
    temperature: float = 1.0
    pool: int = 1
    seed: int = 0
    bias: bool = False

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        at_least(FEWEST if self.form == "paper" else 1, features=self.features)
        at_least(1, pool=self.pool)
        at_least(0, seed=self.seed)
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, but got {self.temperature}.")
        if self.form == "released" and self.kernel != "gaussian":
            raise ValueError(f"The released form has the kernel gaussian, but the kernel is {self.kernel}.")

    @property
    def mapped(self) -> int:
        """F, the number of features of one query or key."""
        return self.features * (2 if self.kernel == "gaussian" else 1)


@dataclass(frozen=True, kw_only=True)
class RandomFeatureAttentionConfig(RandomFeatureConfig):
    """`over`: "self" reads the sequence itself, "memory" the encoder's output.

    Raises ValueError as `RandomFeatureConfig` does, or if the block reads a memory in a model without an encoder.
    """

    memory: bool = given(False)
    over: Over = "self"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_over(self.over, self.memory)


class RandomFeatureBlock(Primitive):
    """Projections and features. A subclass sums the features."""

    projections: Tensor

    def __init__(self, config: RandomFeatureConfig) -> None:
        super().__init__()
        self.config = config
        H, D = config.heads, config.dim // config.heads
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.scale = nn.Parameter(torch.ones(H, 1, D))
        layer = numbered("random_feature_attention")
        rows = [gaussian_rows(H * config.features, D, (config.seed, layer, n)) for n in range(config.pool)]
        self.register_buffer("projections", torch.stack(rows).view(config.pool, H, config.features, D))

    def summed(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, context: Context, slot: dict[str, Tensor] | None
    ) -> Tensor:
        """The sums of v weighted by q . k: [B, H, T, D + 1].

        q and k: [B, H, T, F]. v: [B, H, T, D + 1] with ones in its last column. x: [B, T, C], for a gate.
        """
        raise NotImplementedError

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        slot = context.slot(self, causal=self.config.causal)
        q, k, v = (split(part, self.config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        wide = torch.promote_types(q.dtype, torch.float32)
        # In half precision, the rounding of angles and of long sums would be worse than the error of the features.
        with without_autocast(x.device.type):
            W = self._projection(pieces=slot is not None).to(wide)
            V = _with_ones(v.to(wide), context.padding)
            summed = self.summed(self._features(q.to(wide), W), self._features(k.to(wide), W), V, x, context, slot)
            out = summed[..., :-1] / self.bounded(summed[..., -1:])
        return self.output(merge(out.to(v.dtype)))

    def bounded(self, total: Tensor) -> Tensor:
        """The normalisers [B, H, T, 1] without those near zero."""
        if self.config.form == "released":
            return total.clamp(min=RELEASED_SMALLEST)
        return torch.where(total < 0, total.clamp(max=-SMALLEST), total.clamp(min=SMALLEST))

    def _projection(self, *, pieces: bool = False) -> Tensor:
        """[H, M, D]: in training a random matrix of the pool for each head, otherwise the first.

        The first one also serves for a sequence in pieces, because all pieces need the same. The choice uses PyTorch's
        random state, as dropout does. If that state is restored, the choice is the same.
        """
        if pieces or not self.training or self.config.pool == 1:
            return self.projections[0]
        heads = torch.arange(self.config.heads, device=self.projections.device)
        return self.projections[torch.randint_like(heads, self.config.pool), heads]

    def _features(self, heads: Tensor, W: Tensor) -> Tensor:
        """heads: [B, H, T, D] -> [B, H, T, F]."""
        released, scale = self.config.form == "released", self.scale.to(heads.dtype) / self.config.temperature
        if released:
            x = heads / (heads.norm(dim=3, keepdim=True) + SMALLEST) * scale
            return favor_features(x, W, kind="periodic")[0] * (RELEASED_FEATURES * self.config.features**0.5)
        x = F.normalize(heads, dim=3, eps=SMALLEST) * scale
        if self.config.kernel == "gaussian":
            return favor_features(x, W, kind="periodic")[0]
        return F.relu(torch.einsum("bhtd,hmd->bhtm", x, W)) * self.config.features**-0.5


@primitive(
    "random_feature_attention",
    RandomFeatureAttentionConfig,
    published=Published(
        paper={"normalisers and lengths are bounded away from zero by 1e-3": ""},
        code=("Noahs-ARK/RFA",),
        released={
            "1e-3 is added to lengths, features are multiplied by 0.1, normalisers are at least 1": "form: released",
            "over the memory, the divisor is the absolute value of the normaliser, at least 1": "form: released",
        },
    ),
)
class RandomFeatureAttention(RandomFeatureBlock):
    """Random feature attention without a gate. Streaming keeps the sums, in float32 or wider."""

    config: RandomFeatureAttentionConfig
    capabilities = Capabilities(cross=True)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C].

        Raises ValueError if it reads both ways and the context is streaming, or reads the memory and there is none.
        """
        return self._memory(x, context) if self.config.over == "memory" else super().forward(x, context)

    def _memory(self, x: Tensor, context: Context) -> Tensor:
        """Attention over the memory, whose sums do not depend on x. In streaming they are computed once."""
        C, H = self.config.dim, self.config.heads
        (W_q, W_kv), b = self.query_key_value.weight.split((C, 2 * C)), self.query_key_value.bias
        b_q, b_kv = (None, None) if b is None else b.split((C, 2 * C))
        q = split(F.linear(x, W_q, b_q), H)
        wide = torch.promote_types(q.dtype, torch.float32)
        slot = context.slot(self)
        if not slot:
            k, v = (split(part, H) for part in F.linear(memory_of(context), W_kv, b_kv).chunk(2, dim=2))
        with without_autocast(x.device.type):
            W = self._projection(pieces=slot is not None).to(wide)
            if slot:
                sums = slot["state"]
            else:
                sums = self._features(k.to(wide), W).mT @ _with_ones(v.to(wide), context.get("memory_padding"))
            if slot is not None:
                slot["state"] = sums
            summed = self._features(q.to(wide), W) @ sums
            out = summed[..., :-1] / self.bounded(summed[..., -1:])
        return self.output(merge(out.to(q.dtype)))

    def bounded(self, total: Tensor) -> Tensor:
        """The normalisers [B, H, T, 1] without those near zero."""
        if self.config.form == "released" and self.config.over == "memory":
            total = total.abs()
        return super().bounded(total)

    def summed(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, context: Context, slot: dict[str, Tensor] | None
    ) -> Tensor:
        """The sums without a gate; arguments and result as for `RandomFeatureBlock.summed`."""
        if not self.config.causal:
            return q @ (k.transpose(2, 3) @ v)
        out, state = decayed_linear_attention(q, k, v, state=slot.get("state") if slot else None)
        if slot is not None:
            slot["state"] = state
        return out

    @classmethod
    def reads(cls, config: RandomFeatureAttentionConfig) -> tuple[str, ...]:
        return ("memory",) if config.over == "memory" else ()

    @classmethod
    def states(cls, config: RandomFeatureAttentionConfig) -> Mapping[str, str]:
        return {"state": "B H M D"}

    @classmethod
    def cost(cls, config: RandomFeatureAttentionConfig, shape: Shape) -> Cost:
        states = shape.batch * config.heads
        held = states * config.mapped * (config.dim // config.heads + 1) * max(4, shape.element_bytes)
        if config.over == "memory":
            return around(config, shape, keys=shape.memory) + _sums(config, shape) + Cost(state_bytes=held)
        return around(config, shape) + _sums(config, shape) + Cost(state_bytes=held if config.causal else 0)


def _with_ones(v: Tensor, padding: Tensor | None) -> Tensor:
    """v: [B, H, S, D] -> [B, H, S, D + 1], with a column of ones. Padding gets zeros: it enters neither the sum nor the
    normaliser.
    """
    V = F.pad(v, (0, 1), value=1.0)
    return V if padding is None else V * padding[:, None, :, None]


def around(config: RandomFeatureConfig, shape: Shape, *, keys: int | None = None) -> Cost:
    """The cost of the projections and of the features of queries and keys. keys: positions of the memory, if the keys
    come from there.
    """
    C, D, M = config.dim, config.dim // config.heads, config.features
    rows = 2 * shape.rows if keys is None else shape.rows + shape.batch * keys  # of queries and of keys
    mapped = kept(shape, config.pool * config.heads * M * D + rows * config.heads * (M + 3 * D + 3))
    if keys is None:
        projections = linear(shape, C, 3 * C, bias=config.bias)
    else:
        projections = linear(shape, C, C, bias=config.bias)
        projections += linear(shape, C, 2 * C, bias=config.bias, rows=shape.batch * keys)
    return (
        projections
        + Cost(parameters=C)
        + matmul(rows * config.heads, D, M, backward=1)
        + mapped
        + linear(shape, C, C, bias=config.bias)
    )


def _sums(config: RandomFeatureAttentionConfig, shape: Shape) -> Cost:
    """The products of features and values; the values have one more column, for the normaliser."""
    if config.causal and config.over == "self":
        return causal_sums(config, shape)
    M, D, states = config.mapped, config.dim // config.heads, shape.batch * config.heads
    keys = shape.length if config.over == "self" else shape.memory
    products = matmul(M, keys, D + 1, count=states) + matmul(shape.length, M, D + 1, count=states)
    return products + kept(shape, states * (shape.length * M + keys * (M + D + 1) + M * (D + 1)))


def causal_sums(config: RandomFeatureConfig, shape: Shape) -> Cost:
    """The same for causal attention, chunk by chunk."""
    M, D, states = config.mapped, config.dim // config.heads, shape.batch * config.heads
    N, T = chunks(shape.length)
    # The first chunk has no state before it, and the state after the last chunk is never read.
    near = matmul(T, M, T, count=states * N) + matmul(T, T, D + 1, count=states * N)
    far = matmul(M, T, D + 1, count=states * N, backward=2 if N > 1 else 0)
    far += matmul(T, M, D + 1, count=states * N, backward=2 if N > 1 else 1)
    return near + far + kept(shape, states * N * (T * (2 * M + D + 1) + T * T + M * (D + 1)))
