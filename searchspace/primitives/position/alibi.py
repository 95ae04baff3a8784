"""ALiBi: attention scores fall linearly with distance, with a different fixed slope for each head.

Formula: add -slope_h |i - j| after the scaling, slope_h = 2^(-8 (h + 1) / H)

Press et al. 2022, "Train Short, Test Long", https://arxiv.org/abs/2108.12409, section 3. If H is not a power of two,
the slopes are those of the next lower power P, followed by the 1st, 3rd, ... of the slopes of 2 P, as in the released
code. In causal attention |i - j| is i - j. In bidirectional attention both directions are treated alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from searchspace.contract import given
from searchspace.primitives.position.none import NoPosition
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class AlibiConfig:
    dim: int = given()


def slopes(heads: int) -> list[float]:
    """The slope of each head: how much its scores fall per position."""
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(0, 2 * power, 2)]
    return own + between[: heads - power]


@primitive(
    "alibi",
    AlibiConfig,
    role="position",
    published=Published(),
)
class Alibi(NoPosition):
    """A bias of the scores by distance, without parameters."""

    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        """queries: [Tq], keys: [Tk], their positions -> [H, Tq, Tk] of float32."""
        rates = torch.tensor(slopes(heads), device=queries.device)
        distance = (queries[:, None] - keys[None, :]).abs()
        return -rates[:, None, None] * distance
