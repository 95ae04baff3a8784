"""Linear attention: a feature map replaces the softmax, so the cost grows as T and the state is one matrix.

Formula: out_i = phi(q_i) S / (phi(q_i) z + 1e-6), S = sum_j phi(k_j)^T v_j, z = sum_j phi(k_j), over j <= i if causal

Katharopoulos et al. 2020, "Transformers are RNNs", https://arxiv.org/abs/2006.16236, eq. 5 and 8-12. phi(x) is elu(x) +
1, or relu(x). Rotary positions and ALiBi have no effect, because there are no scores: positions must be added to the
input. B batch, T time, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from kernels.linear_attention.elu_features import elu_features
from kernels.linear_attention.linear_attention import chunks, linear_attention
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LinearAttentionConfig:
    """`feature_map`: phi, the feature map.

    Raises ValueError if heads does not divide dim.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    feature_map: Literal["elu", "relu"] = "elu"
    bias: bool = False

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)


@primitive("linear_attention", LinearAttentionConfig)
class LinearAttention(Primitive):
    """Linear attention. Streaming keeps S and z, in float32 or wider."""

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        slot = context.slot(causal=self.config.causal)
        both, v = self._projected(x)
        q, k, v = (split(part, self.config.heads) for part in (*both.chunk(2, dim=2), v))
        if context.padding is not None:
            k = k.masked_fill(~context.padding[:, None, :, None], 0)  # after phi, because phi(0) is 1
        state = slot.get("state") if slot is not None else None
        out, state = linear_attention(q, k, v, causal=self.config.causal, state=state)
        if slot is not None:
            slot["state"] = state
        return self.output(merge(out))

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The features of queries and keys, [B, T, 2C], and the values. Two products keep their gradients in separate
        tensors.
        """
        both, values = (F.linear(x, *part) for part in self._parts())
        return (elu_features(both) if self.config.feature_map == "elu" else F.relu(both, inplace=True)), values

    def _parts(self) -> Iterator[tuple[Tensor, ...]]:
        """The weight, and the bias if there is one, of queries and keys, then of values."""
        parameters = (p for p in (self.query_key_value.weight, self.query_key_value.bias) if p is not None)
        return zip(*(p.split((2 * self.config.dim, self.config.dim)) for p in parameters), strict=True)

    @classmethod
    def cost(cls, config: LinearAttentionConfig, shape: Shape) -> Cost:
        C, D = config.dim, config.dim // config.heads
        states = shape.batch * config.heads
        held = states * D * (D + 1) * max(4, shape.element_bytes) if config.causal else 0
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + _products(config, shape)
            + linear(shape, C, C, bias=config.bias)
            + Cost(state_bytes=held)
        )


def _products(config: LinearAttentionConfig, shape: Shape) -> Cost:
    """The cost between the projections: the sums with their normalisers, which are one more column of the values."""
    D, states = config.dim // config.heads, shape.batch * config.heads
    rows = states * shape.length
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
