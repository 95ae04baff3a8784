"""Gated random feature attention: a learned gate decides at every step how much of the past to keep.

Formula: S_t = g_t S_{t-1} + (1 - g_t) phi(k_t)^T v_t, z_t = g_t z_{t-1} + (1 - g_t) phi(k_t), out_t = phi(q_t) S_t /
(phi(q_t) z_t), g_t = sigmoid(w_g x_t + b_g)

Peng et al. 2021, "Random Feature Attention", https://arxiv.org/abs/2103.02143, section 3.2, eq. 6, per head. At
position i, key j has the weight (1 - g_j) prod_{j < t <= i} g_t. The block reads only the past, in an encoder too. B
batch, T time, H heads, D width of one head, F features, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.linear_attention.decayed_linear_attention import decayed_linear_attention
from kernels.linear_attention.linear_attention import chunks
from searchspace.contract import Capabilities, Context
from searchspace.cost import Cost, Shape, kept, linear
from searchspace.primitives.linear_attention.random_feature_attention import (
    RandomFeatureBlock,
    RandomFeatureConfig,
    around,
    causal_sums,
)
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class GatedRandomFeatureAttentionConfig(RandomFeatureConfig):
    """The same options, without `over`. A block that is not `causal` still reads only the past, but keeps no state."""


@primitive(
    "gated_random_feature_attention",
    GatedRandomFeatureAttentionConfig,
    published=Published(
        paper={"normalisers and lengths are bounded away from zero by 1e-3": ""},
        code=("Noahs-ARK/RFA",),
        released={
            "there is no gate": "",
            "1e-3 is added to lengths, features are multiplied by 0.1, normalisers are at least 1": "form: released",
        },
    ),
)
class GatedRandomFeatureAttention(RandomFeatureBlock):
    """Random feature attention with a gate. Streaming keeps the gated sums, in float32 or wider."""

    capabilities = Capabilities(bidirectional=False)

    def __init__(self, config: GatedRandomFeatureAttentionConfig) -> None:
        super().__init__(config)
        self.gate = nn.Linear(config.dim, config.heads)

    def summed(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, context: Context, slot: dict[str, Tensor] | None
    ) -> Tensor:
        """The gated sums of v weighted by q . k: [B, H, T, D + 1].

        q and k: [B, H, T, F]. v: [B, H, T, D + 1] with ones in its last column. x: [B, T, C] -> the gate.
        """
        weight, bias = self.gate.weight.to(q.dtype), self.gate.bias.to(q.dtype)
        gate = F.linear(x.to(q.dtype), weight, bias).transpose(1, 2)  # [B, H, T]
        decay, added = F.logsigmoid(gate), torch.sigmoid(-gate)
        if context.padding is not None:  # padding forgets nothing
            decay = decay.masked_fill(~context.padding[:, None, :], 0)
        v = v * added[..., None]
        out, state = decayed_linear_attention(q, k, v, decay=decay, state=slot.get("state") if slot else None)
        if slot is not None:
            slot["state"] = state
        return out

    @classmethod
    def states(cls, config: GatedRandomFeatureAttentionConfig) -> Mapping[str, str]:
        return {"state": "B H M D"}

    @classmethod
    def cost(cls, config: GatedRandomFeatureAttentionConfig, shape: Shape) -> Cost:
        D, states = config.dim // config.heads, shape.batch * config.heads
        N, T = chunks(shape.length)
        weights = kept(
            shape,
            states * N * (3 * T * (D + 1) + 2 * T * T + config.mapped * (D + 1)) + states * shape.length * (D + 4),
        )
        held = states * config.mapped * (D + 1) * max(4, shape.element_bytes) if config.causal else 0
        gate = linear(shape, config.dim, config.heads)
        return around(config, shape) + gate + causal_sums(config, shape) + weights + Cost(state_bytes=held)
