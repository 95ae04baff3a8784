"""Parameter-count ranking: the largest models first, without learning anything. A baseline for searches of quality.

In LiteTransformerSearch (https://arxiv.org/abs/2203.02094) the non-embedding parameters alone rank GPT-2 models nearly
as well as training does. If larger models are better in a space, a search has to beat this order.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Annotated

from nas.options import Field, Steps
from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, SearchSpace
from nas.strategies.registry import strategy

if TYPE_CHECKING:
    from searchspace.space.point import Point


@strategy("parameters")
class Parameters(StrategyBase):
    """draws: random points of each proposal; the one with the most parameters outside of embeddings is proposed."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        draws: Annotated[Steps, Field(le=10_000)] = 16,
    ) -> None:
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.draws = draws

    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        drawn = [self.space.sample(rng) for _ in range(max(1, self.draws - tried))]
        return Proposal(max(drawn, key=non_embedding), "parameters")


def non_embedding(point: Point) -> float:
    """The parameters of a point's model without its tables of tokens; 0 for a point of a space without models."""
    architecture = point.architecture
    if not hasattr(architecture, "root"):
        return 0.0
    from searchspace.cost import Shape
    from searchspace.model import build

    return float(build.cost(architecture, Shape(batch=1, length=1)).parameters) - _embedding(architecture)


def _embedding(architecture: object) -> float:
    fields = architecture.root.fields  # type: ignore[attr-defined]
    width, symbols = fields.get("width"), fields.get("vocabulary") or 0
    return float(width * symbols) if isinstance(width, int) and isinstance(symbols, int) else 0.0
