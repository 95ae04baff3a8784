"""ALiBi: attention scores fall linearly with distance, at a rate of its own for every head; nothing is learned.

Press et al. 2022, "Train Short, Test Long", https://arxiv.org/abs/2108.12409, section 3: add -slope_h |i - j| after the
scaling, slope_h = 2^(-8 (h + 1) / H). When H is no power of two: the slopes of the next lower power P, then the 1st,
3rd, ... of those of 2 P, as its released code does. |i - j| is i - j in causal attention, alike both ways elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from searchspace.contract import given
from searchspace.primitives.position.none import NoPosition
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class AlibiConfig:
    dim: int = given()


def slopes(heads: int) -> list[float]:
    """How fast the scores of every head fall, a position."""
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(0, 2 * power, 2)]
    return own + between[: heads - power]


@primitive("alibi", AlibiConfig, role="position")
class Alibi(NoPosition):
    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        """queries: [Tq], keys: [Tk] -> [H, Tq, Tk] of float32."""
        rates = torch.tensor(slopes(heads), device=queries.device)
        distance = (queries[:, None] - keys[None, :]).abs()
        return -rates[:, None, None] * distance
