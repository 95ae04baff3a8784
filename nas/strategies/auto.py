"""The default: the strategy `model`, or evolution for a space in which models cannot be fitted quickly.

A study keeps the name that was chosen when it was created, so it stays the same if a later release chooses otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from nas.options import Names
from nas.strategies._surrogate.codes import holes_of
from nas.strategies.contract import Evaluate, SearchSpace, Strategy
from nas.strategies.earlier import Earlier
from nas.strategies.registry import make, strategy
from searchspace.language.holes import values

MOST_HOLES = 1_000  # with more, one fit takes seconds
MOST_COLUMNS = 4_000  # values of choices and numbers


def chosen(space: SearchSpace, objectives: int) -> str:
    """The name of the strategy for a search of `space` with this many objectives."""
    holes = holes_of(space)
    columns = sum(len(values(hole) or ()) if hasattr(hole, "options") else 1 for hole in holes.values())
    if len(holes) <= MOST_HOLES and columns <= MOST_COLUMNS:
        return "model"
    return "aging_evolution" if objectives == 1 else "nsga2"


@strategy("auto")
def auto(
    space: SearchSpace,
    *,
    seed: int,
    objectives: int = 1,
    evaluate: Evaluate | None = None,
    trials: int | None = None,
    earlier: Sequence[Earlier] = (),
    learn_from: Names = (),
) -> Strategy:
    """The strategy that `chosen` names, with its own defaults. learn_from: as for `model`.

    Raises UsageError if it is not `model` and there is `learn_from`.
    """
    options = {"learn_from": learn_from} if learn_from else {}
    return make(chosen(space, objectives), space, seed, objectives, evaluate, trials, earlier, **options)
