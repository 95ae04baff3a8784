"""Branched convolution: two parallel operations of different width and kernel, combined, then a third operation.

Formula: z = LN(combine(f_L(L y), f_R(R y))), out = pad(f_O(O z))

So et al. 2019, "The Evolved Transformer", https://arxiv.org/abs/1901.11117, figure 3 and appendix A. L, R and O are
each one of the operations of `operations`; f_L, f_R and f_O are their activations. The defaults are the encoder's cell:
L is a dense layer of 4 C with relu, R a convolution of 3 taps and C / 2 with relu, the branches are added, and O is a
separable convolution of 9 taps and C / 2. The decoder's cell has separable convolutions of 11 taps and 2 C with relu,
of 7 taps and C / 2, and of 7 taps and C. Widths are multiples of C.

add, multiply: if the branches have different widths, the narrower one is padded on the right with the neutral element,
0 or 1, as in the released search code. concatenate: the branches are concatenated. If a branch is `none`, only the
other one is used. identity keeps C channels whatever its width says. Dropout is applied to each branch. y and z are
zero at padding and beyond the ends. The output is padded with zeros to C channels. B batch, T time, K taps (the larger
of the two branches), C model width, W width of z.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least, probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, total
from searchspace.primitives.convolution.neighbours import TAIL, before, tail_cost, with_neighbours
from searchspace.primitives.convolution.operations import (
    OVER_TIME,
    Activation,
    Kind,
    Operation,
    OperationConfig,
    operation_cost,
)
from searchspace.primitives.feedforward.hidden import dropped
from searchspace.published import Published
from searchspace.registry import primitive

EPS = 1e-6  # of the norm of z
NEUTRAL = {"add": 0.0, "multiply": 1.0}


@dataclass(frozen=True, kw_only=True)
class BranchedConvolutionConfig:
    """`left`: operation of the left branch.
    `left_kernel`: kernel of the left branch.
    `left_width`: width of the left branch, as a multiple of C.
    `left_activation`: activation of the left branch.
    `right`: operation of the right branch.
    `right_kernel`: kernel of the right branch.
    `right_width`: width of the right branch, as a multiple of C.
    `right_activation`: activation of the right branch.
    `combine`: how the two branches are combined.
    `norm`: whether the combined branches are normalised.
    `output`: operation after the branches.
    `output_kernel`: kernel of the output operation.
    `output_width`: width of the output operation, as a multiple of C.
    `output_activation`: activation of the output operation.
    `heads`: number of heads of lightweight operations.

    Raises ValueError if a width is not a whole number of channels, the output is wider than the model, both branches
    are none, the heads do not divide a width, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    left: Kind = "dense"
    left_kernel: int = 3
    left_width: float = 4.0
    left_activation: Activation = "relu"
    right: Kind = "convolution"
    right_kernel: int = 3
    right_width: float = 0.5
    right_activation: Activation = "relu"
    combine: Literal["add", "concatenate", "multiply"] = "add"
    norm: bool = True
    output: Literal["dense", "convolution", "separable", "lightweight"] = "separable"
    output_kernel: int = 9
    output_width: float = 0.5
    output_activation: Activation = "identity"
    heads: int = 4
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least(1, heads=self.heads)
        at_least(1, left_kernel=self.left_kernel, right_kernel=self.right_kernel, output_kernel=self.output_kernel)
        probability(dropout=self.dropout)
        for name in ("left_width", "right_width", "output_width"):
            channels = getattr(self, name) * self.dim
            if channels < 1 or channels % 1:
                raise ValueError(
                    f"{name} must give a whole number of channels, but got {name}={getattr(self, name)} of "
                    f"dim={self.dim}, which is {channels:g}."
                )
        if self.output_width > 1:
            raise ValueError(f"output_width must be at most 1, the width of the model, but got {self.output_width}.")
        if not self.branches:
            raise ValueError("left and right must not both be 'none': the block would compute nothing.")
        _ = self.last  # checks the heads of the operation

    @property
    def branches(self) -> tuple[OperationConfig, ...]:
        """The operations on y, without branches that are `none`."""
        sides = [self._operation(side, self.dim) for side in ("left", "right") if getattr(self, side) != "none"]
        return tuple(sides)

    @property
    def last(self) -> OperationConfig:
        """The operation on z."""
        return self._operation("output", self.combined)

    @property
    def combined(self) -> int:
        """W, the number of channels of z."""
        widths = [branch.outputs for branch in self.branches]
        return sum(widths) if self.combine == "concatenate" else max(widths)

    @property
    def taps(self) -> int:
        """K, the number of positions of y that an output position reads, in the branch that reads more."""
        return max(branch.taps for branch in self.branches)

    def _operation(self, side: str, inputs: int) -> OperationConfig:
        kind = getattr(self, side)
        width = inputs if kind == "identity" else int(getattr(self, f"{side}_width") * self.dim)
        kernel, activation = getattr(self, f"{side}_kernel"), getattr(self, f"{side}_activation")
        return OperationConfig(
            kind=kind, kernel=kernel, inputs=inputs, outputs=width, activation=activation, heads=self.heads
        )


@primitive(
    "branched_convolution",
    BranchedConvolutionConfig,
    published=Published(),
)
class BranchedConvolution(Primitive):
    """Two branches and an output operation. Streaming keeps the last K - 1 positions of y and those of z that O still
    reads.
    """

    def __init__(self, config: BranchedConvolutionConfig) -> None:
        super().__init__()
        self.config = config
        self.branches = nn.ModuleList(map(Operation, config.branches))
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.combined, EPS) if config.norm else nn.Identity()
        self.last = Operation(config.last)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        config = self.config
        padded = with_neighbours(self, x, config.taps, context, causal=config.causal)
        branches = [
            self.dropout(operation(self._near(padded, branch.taps)))
            for operation, branch in zip(self.branches, config.branches, strict=True)
        ]
        z = self.norm(self._combined(branches))
        out = self.last(with_neighbours(self, z, config.last.taps, context, causal=config.causal))
        return _widened(out, config.dim)

    def _near(self, padded: Tensor, taps: int) -> Tensor:
        """padded: [B, T + K - 1, C] -> [B, T + taps - 1, C], the part that a branch with fewer taps reads."""
        most, causal = self.config.taps, self.config.causal
        start = before(most, causal=causal) - before(taps, causal=causal)
        return padded.narrow(1, start, padded.shape[1] - most + taps)

    def _combined(self, branches: list[Tensor]) -> Tensor:
        if self.config.combine == "concatenate":
            return torch.cat(branches, dim=2)
        sides = [_widened(branch, self.config.combined, NEUTRAL[self.config.combine]) for branch in branches]
        return reduce(torch.add if self.config.combine == "add" else torch.mul, sides)

    @classmethod
    def states(cls, config: BranchedConvolutionConfig) -> Mapping[str, str]:
        return TAIL

    @classmethod
    def cost(cls, config: BranchedConvolutionConfig, shape: Shape) -> Cost:
        C, W, last = config.dim, config.combined, config.last
        drops = (dropped(config.dropout, shape, branch.outputs) for branch in config.branches)
        return (
            total(operation_cost(branch, shape) for branch in config.branches)
            + total(drops)
            + _padded(config.branches, C, config.taps, shape)
            + tail_cost(config.taps, C, shape, causal=config.causal)
            + _between(config, shape)
            + operation_cost(last, shape)
            + _padded((last,), W, last.taps, shape)
            + tail_cost(last.taps, W, shape, causal=config.causal)
        )


def _widened(x: Tensor, width: int, value: float = 0.0) -> Tensor:
    """x: [B, T, M] -> [B, T, width], with the new channels on the right."""
    return x if x.shape[2] == width else F.pad(x, (0, width - x.shape[2]), value=value)


def _padded(operations: tuple[OperationConfig, ...], width: int, taps: int, shape: Shape) -> Cost:
    """The memory that operations over time keep of their common input."""
    over_time = any(operation.kind in OVER_TIME for operation in operations)
    return kept(shape, shape.batch * (shape.length + taps - 1) * width if over_time else 0)


def _between(config: BranchedConvolutionConfig, shape: Shape) -> Cost:
    """The combination and its norm. A product keeps its factors (relu already keeps its own); the norm keeps z."""
    W, branches = config.combined, config.branches
    factors = 0
    if config.combine == "multiply" and len(branches) == 2:
        factors = sum(W for branch in branches if branch.activation != "relu" or branch.outputs < W)
    alone = len(branches) == 1 and branches[0].activation == "relu"
    normalised = 0 if alone or not config.norm else W
    statistics = Cost(activation_bytes=2 * shape.rows * max(4, shape.element_bytes)) if config.norm else Cost()
    parameters = Cost(parameters=2 * W if config.norm else 0)
    return parameters + kept(shape, shape.rows * (factors + normalised)) + statistics
