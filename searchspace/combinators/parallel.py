"""Branches that read the same input, combined into one output.

Formula: sum_k f_k(x), or its mean, or W [f_1(x); ..; f_n(x)]

add: the sum, as in So et al. 2019, "The Evolved Transformer", https://arxiv.org/abs/1901.11117. mean: the sum divided
by the number of branches. concatenate: the channels are concatenated, then a linear map W [n C, C] restores the width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.checks import not_empty
from searchspace.combinators.sequence import SequenceConfig, Stack
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Shape, linear
from searchspace.parts import Composite, Part, in_order
from searchspace.published import Published
from searchspace.registry import Branches, Configured, block_type, primitive


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """`combine`: how the outputs of the branches are combined.
    `of`: the branches.

    Raises ValueError if there are no branches.
    """

    dim: int = given()
    combine: Literal["add", "mean", "concatenate"] = "add"
    of: Branches

    def __post_init__(self) -> None:
        not_empty(of=self.of)


@primitive(
    "parallel",
    ParallelConfig,
    published=Published(),
)
class Parallel(Composite, Primitive):
    """Branches on the same input."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: ParallelConfig) -> None:
        super().__init__()
        self.combine = config.combine
        self.of = nn.ModuleList(Stack(branch) for branch in config.of)
        if self.combine == "concatenate":
            self.output = nn.Linear(len(config.of) * config.dim, config.dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        branches = [branch(x, context) for branch in self.of]
        if self.combine == "concatenate":
            return self.output(torch.cat(branches, dim=-1))
        total = sum(branches[1:], branches[0])
        return total / len(branches) if self.combine == "mean" else total

    @classmethod
    def parts(cls, config: ParallelConfig, shape: Shape) -> list[Part]:
        parts = in_order("of", [_as_one(branch) for branch in config.of], shape)
        parts = [replace(part, shape=replace(part.shape, normed=shape.normed)) for part in parts]  # all read one input
        if config.combine == "concatenate":
            own = linear(shape, len(config.of) * config.dim, config.dim)
            parts.append(Part(name="output", shape=shape, own=own))
        return parts


def _as_one(branch: tuple[Configured, ...]) -> Configured:
    return branch[0] if len(branch) == 1 else Configured(block_type("sequence"), SequenceConfig(of=branch))
