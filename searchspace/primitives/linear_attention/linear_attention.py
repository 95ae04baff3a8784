"""Linear attention: a feature map replaces the softmax, so the cost grows as T and the state is one matrix.

Formula: out_i = phi(q_i) S / (phi(q_i) z + 1e-6), S = sum_j phi(k_j)^T v_j, z = sum_j phi(k_j), over j <= i if causal

Katharopoulos et al. 2020, "Transformers are RNNs", https://arxiv.org/abs/2006.16236, eq. 5 and 8-12. phi(x) is elu(x) +
1, or relu(x). With `over: memory`, j runs over the encoder's output: the authors' code (idiap/fast-transformers) calls
this cross-attention. Rotary positions and ALiBi have no effect, because there are no scores: positions must be added to
the input. B batch, T time, S positions of the memory, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from kernels.linear_attention.elu_features import elu_features
from kernels.linear_attention.linear_attention import chunks, linear_attention
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.over_memory import Over, check_over, memory_of
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LinearAttentionConfig:
    """`feature_map`: phi, the feature map.
    `over`: "self" reads the sequence itself, "memory" the encoder's output.

    Raises ValueError if heads does not divide dim, or the block reads a memory in a model without an encoder.
    """

    dim: int = given()
    causal: bool = given(False)
    memory: bool = given(False)
    heads: int = 4
    over: Over = "self"
    feature_map: Literal["elu", "relu"] = "elu"
    bias: bool = False

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        check_over(self.over, self.memory)


@primitive(
    "linear_attention",
    LinearAttentionConfig,
    published=Published(
        code=("idiap/fast-transformers",),
    ),
)
class LinearAttention(Primitive):
    """Linear attention. Streaming keeps S and z, in float32 or wider."""

    capabilities = Capabilities(cross=True)

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C].

        Raises ValueError if it reads both ways and the context is streaming, or reads the memory and there is none.
        """
        if self.config.over == "memory":
            return self._memory(x, context)
        slot = context.slot(self, causal=self.config.causal)
        both, v = self._projected(x)
        q, k, v = (split(part, self.config.heads) for part in (*both.chunk(2, dim=2), v))
        if context.padding is not None:
            k = k.masked_fill(~context.padding[:, None, :, None], 0)  # after phi, because phi(0) is 1
        state = slot.get("state") if slot is not None else None
        out, state = linear_attention(q, k, v, causal=self.config.causal, state=state)
        if slot is not None:
            slot["state"] = state
        return self.output(merge(out))

    def _memory(self, x: Tensor, context: Context) -> Tensor:
        """Attention over the memory: its sums S and z do not depend on x. In streaming they are computed once."""
        C, H = self.config.dim, self.config.heads
        queries, keys, values = self._parts(C, C, C)
        q = split(self._features(F.linear(x, *queries)), H)
        slot = context.slot(self)
        if slot:
            none = q[:, :, :0]
            out, _ = linear_attention(q, none, none, causal=False, state=slot["state"])
            return self.output(merge(out))
        memory = memory_of(context)
        k, v = split(self._features(F.linear(memory, *keys)), H), split(F.linear(memory, *values), H)
        if (padding := context.get("memory_padding")) is not None:
            k = k.masked_fill(~padding[:, None, :, None], 0)
        out, state = linear_attention(q, k, v, causal=False)
        if slot is not None:
            slot["state"] = state
        return self.output(merge(out))

    def _features(self, x: Tensor) -> Tensor:
        """phi(x), any shape -> the same shape. It changes x."""
        return elu_features(x) if self.config.feature_map == "elu" else F.relu(x, inplace=True)

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The features of queries and keys, [B, T, 2C], and the values. Two products keep their gradients in separate
        tensors.
        """
        both, values = (F.linear(x, *part) for part in self._parts(2 * self.config.dim, self.config.dim))
        return self._features(both), values

    def _parts(self, *widths: int) -> Iterator[tuple[Tensor, ...]]:
        """The weight, and the bias if there is one, of each part of queries, keys and values."""
        parameters = (p for p in (self.query_key_value.weight, self.query_key_value.bias) if p is not None)
        return zip(*(p.split(widths) for p in parameters), strict=True)

    @classmethod
    def reads(cls, config: LinearAttentionConfig) -> tuple[str, ...]:
        return ("memory",) if config.over == "memory" else ()

    @classmethod
    def states(cls, config: LinearAttentionConfig) -> Mapping[str, str]:
        return {"state": "B H M D"}

    @classmethod
    def cost(cls, config: LinearAttentionConfig, shape: Shape) -> Cost:
        C, D = config.dim, config.dim // config.heads
        states = shape.batch * config.heads
        over_self = config.over == "self"
        held = states * D * (D + 1) * max(4, shape.element_bytes) if config.causal or not over_self else 0
        projections = linear(shape, C, 3 * C, bias=config.bias)
        if not over_self:
            projections = linear(shape, C, C, bias=config.bias)
            projections += linear(shape, C, 2 * C, bias=config.bias, rows=shape.batch * shape.memory)
        return projections + _products(config, shape) + linear(shape, C, C, bias=config.bias) + Cost(state_bytes=held)


def _products(config: LinearAttentionConfig, shape: Shape) -> Cost:
    """The cost between the projections: the sums with their normalisers, which are one more column of the values."""
    D, states = config.dim // config.heads, shape.batch * config.heads
    rows = states * shape.length
    if config.over == "memory":
        S = shape.memory
        products = matmul(D, S, D, count=states) + matmul(shape.length, D, D + 1, count=states)
        numbers = states * (shape.length * (D + 1) + S * 3 * D + D * (D + 1))
        return products + kept(shape, numbers)
    if not config.causal:
        products = matmul(D, shape.length, D, count=states) + matmul(shape.length, D, D + 1, count=states)
        # Features and values with a column for the normaliser. The products copy inputs that are not contiguous.
        numbers = 3 * D if shape.batch == 1 else 4 * D
        return products + kept(shape, rows * (numbers + 1) + states * D * (D + 1))
    inputs = kept(shape, rows * (2 * D + 1))  # features, and one normaliser per row
    N, C = chunks(shape.length)
    near = matmul(C, D, C, count=states * N) + matmul(C, C, D + 1, count=states * N)
    far = matmul(D, C, D + 1, count=states * N) + matmul(C, D, D + 1, count=states * N)
    return inputs + near + far + kept(shape, states * N * (C * (2 * D + 2 * (D + 1) + C) + D * (D + 1)))
