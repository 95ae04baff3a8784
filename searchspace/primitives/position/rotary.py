"""Rotary positions: queries and keys are rotated by angles that grow with the position, so scores depend on distances.

Formula: pair m of a head's query or key turns by the angle p * base^(-2m/D)

Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864, eq. 34. D is the width of a head. The layout "interleaved"
pairs dimensions (2m, 2m + 1), as the paper does. "halves" pairs (m, m + D/2), as Llama and GPT-NeoX do. The two differ
by a permutation of the rows of Wq and Wk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from kernels.rowwise.rotary import rotary
from searchspace.contract import given
from searchspace.primitives.position.none import NoPosition
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class RotaryConfig:
    """`layout`: which dimensions form a pair.
    `base`: the base of the angles.

    Raises ValueError if the base is not above 0.
    """

    dim: int = given()
    layout: Literal["halves", "interleaved"] = "halves"
    base: float = 10000.0

    def __post_init__(self) -> None:
        if not self.base > 0:
            raise ValueError(f"base must be above 0, but got base={self.base}.")


@primitive(
    "rotary",
    RotaryConfig,
    role="position",
    published=Published(
        paper={"dimensions (m, m + D/2) are a pair instead of (2m, 2m + 1)": "layout: interleaved"},
        code=("transformers",),
    ),
)
class Rotary(NoPosition):
    """A rotation of queries and keys by position, without parameters."""

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """heads: [B, H, T, D], positions: [T] or [B, T] -> [B, H, T, D]. Angles are computed in float32 or wider.

        Raises ValueError if D is odd.
        """
        if positions.dim() == 1:
            return rotary(heads, positions, self.config.base, self.config.layout)
        B, H, T, D = heads.shape  # one long sequence, because the operation has one list of positions for all
        line = heads.transpose(0, 1).reshape(1, H, B * T, D)
        turned = rotary(line, positions.flatten(), self.config.base, self.config.layout)
        return turned.view(H, B, T, D).transpose(0, 1)
