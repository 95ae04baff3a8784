"""A mixture of experts: each position is computed by a few of many gated feed-forward networks.

Formula: sum of s_e f_e(x) / sum of s_e, both over the k experts with the largest s_e + b_e, s = softmax(W x)

Shazeer et al. 2017, "Outrageously Large Neural Networks", https://arxiv.org/abs/1701.06538; the sigmoid router and the
bias b, which balances the load without a loss, are those of DeepSeek-V3, https://arxiv.org/abs/2412.19437, section
2.1.2: after each step of training b_e grows by `balance` if expert e had fewer positions than the mean, and else it
falls. The bias chooses experts and does not weigh them. B batch, T time, C width, N positions, k chosen of E experts, F
width of an expert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, matmul
from searchspace.published import Published
from searchspace.registry import primitive

SMALLEST = 1e-20  # of the sum of chosen scores


@dataclass(frozen=True, kw_only=True)
class MixtureOfExpertsConfig:
    """`experts`: E, number of experts.
    `chosen`: k, how many of them compute a position.
    `hidden`: F, the hidden width of an expert; null takes the width of the model.
    `router`: whether scores are a softmax over the experts, or a sigmoid of each.
    `balance`: how much the bias of an expert changes after a step; 0 leaves it at zero.

    Raises ValueError if a number is below 1, fewer experts exist than are chosen, or the balance is negative.
    """

    dim: int = given()
    experts: int = 8
    chosen: int = 2
    hidden: int | None = None
    router: Literal["softmax", "sigmoid"] = "softmax"
    balance: float = 0.001

    def __post_init__(self) -> None:
        at_least(1, experts=self.experts, chosen=self.chosen, hidden=self.hidden)
        if self.chosen > self.experts:
            raise ValueError(f"chosen must be at most experts, but got chosen={self.chosen}, experts={self.experts}.")
        if self.balance < 0:
            raise ValueError(f"balance must not be negative, but got {self.balance}.")

    @property
    def width(self) -> int:
        """F, the hidden width of an expert."""
        return self.hidden or self.dim


@primitive(
    "mixture_of_experts",
    MixtureOfExpertsConfig,
    published=Published(paper={"scores have no noise, and a bias balances the load": ""}),
)
class MixtureOfExperts(Primitive):
    """Experts behind a router. It reports the share of the choices that each expert gets as `expert_load`, [E]."""

    capabilities = Capabilities(pointwise=True, selects=True)
    bias: Tensor
    counts: Tensor

    def __init__(self, config: MixtureOfExpertsConfig) -> None:
        super().__init__()
        self.config = config
        E, C, W = config.experts, config.dim, config.width
        self.router = nn.Linear(C, E, bias=False)
        self.inner = nn.Parameter(torch.empty(E, 2 * W, C).uniform_(-(C**-0.5), C**-0.5))
        self.outer = nn.Parameter(torch.empty(E, C, W).uniform_(-(W**-0.5), W**-0.5))
        self.register_buffer("bias", torch.zeros(E))
        self.register_buffer("counts", torch.zeros(E), persistent=False)  # of choices since the last step

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        rows = x.flatten(0, 1)
        scores = self.router(rows).to(torch.promote_types(x.dtype, torch.float32))
        scores = scores.softmax(1) if self.config.router == "softmax" else scores.sigmoid()  # [N, E]
        chosen = context.choose(lambda: (scores.detach() + self.bias).topk(self.config.chosen, dim=1).indices)
        weights = scores.gather(1, chosen)
        weights = (weights / weights.sum(1, keepdim=True).clamp(min=SMALLEST)).to(x.dtype)
        self._count(chosen, context)
        return self._mixed(rows, chosen, weights).view_as(x)

    def _count(self, chosen: Tensor, context: Context) -> None:
        """Count the choices of real positions, [N, k]."""
        load = F.one_hot(chosen, self.config.experts).sum(1)  # [N, E]
        if context.padding is not None:
            load = load * context.padding.flatten()[:, None]
        load = load.sum(0).to(self.counts.dtype)
        context.report("expert_load", load / load.sum().clamp(min=1))
        if self.training:
            self.counts = self.counts + load

    def _mixed(self, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """rows: [N, C], chosen and weights: [N, k] -> [N, C]."""
        out = torch.zeros_like(rows)
        for expert, (inner, outer) in enumerate(zip(self.inner, self.outer, strict=True)):
            if torch.compiler.is_compiling():  # a graph has no sizes that depend on data: every expert reads every row
                share = (weights * (chosen == expert)).sum(1, keepdim=True)
                out = out + share * self._expert(rows, inner, outer)
            else:
                places, which = (chosen == expert).nonzero(as_tuple=True)
                found = self._expert(rows[places], inner, outer) * weights[places, which, None]
                out = out.index_add(0, places, found.to(out.dtype))
        return out

    def _expert(self, rows: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
        gate, value = F.linear(rows, inner.to(rows.dtype)).chunk(2, dim=1)
        return F.linear(F.silu(gate) * value, outer.to(rows.dtype))

    def after_step(self) -> None:
        """Move the bias of each expert towards an even load."""
        self.bias += self.config.balance * torch.sign(self.counts.mean() - self.counts)
        self.counts = torch.zeros_like(self.counts)

    @classmethod
    def cost(cls, config: MixtureOfExpertsConfig, shape: Shape) -> Cost:
        C, E, W, k = config.dim, config.experts, config.width, config.chosen
        expert = 3 * C * W
        return (
            matmul(shape.rows, C, E)
            + matmul(shape.rows * k, C, 2 * W)
            + matmul(shape.rows * k, W, C)
            + Cost(parameters=C * E + E * expert, idle_parameters=(E - k) * expert)
            # The input, scores and choices; the rows, gates, values, products and results of the chosen experts.
            + kept(shape, shape.rows * (C + 2 * E + k * (2 * C + 4 * W + 2)))
            + Cost(activation_bytes=shape.rows * 24 * k)
        )
