"""NSGA-III: as NSGA-II, but reference directions keep the members of a front apart; see `reference_directions`.

Deb & Jain 2014, https://doi.org/10.1109/TEVC.2013.2281535, in steady state as `nas.strategies.nsga2`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nas.options import Field, Fraction, Trials
from nas.strategies.contract import Evaluate, SearchSpace
from nas.strategies.nsga2 import NSGA2
from nas.strategies.population import AUTO, Moves
from nas.strategies.registry import strategy


@strategy("nsga3")
class NSGA3(NSGA2):
    """The options are those of `nsga2`, without `niches`."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        trials: int | None = None,
        population: Annotated[Trials, Field(ge=2)] = 50,
        start: Literal["auto"] | Annotated[Trials, Field(ge=2)] = AUTO,
        crossover: Fraction = 0.5,
        mutation: Fraction = 0.5,
        tournament: Trials = 8,
        moves: Moves = "all",
    ) -> None:
        super().__init__(
            space,
            seed=seed,
            objectives=objectives,
            evaluate=evaluate,
            trials=trials,
            population=population,
            start=start,
            crossover=crossover,
            mutation=mutation,
            tournament=tournament,
            moves=moves,
            niches="directions",
        )
        self.resolved = {"start": self.first}
