"""What one process needs to work on a study: its arms, its objectives and the proposer, made from the search file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine.allowance import Allowance
from nas.engine.arm import Arm
from nas.engine.proposer import Proposer
from nas.engine.scores import Scores
from nas.objectives.contract import Objective
from nas.store import MAIN, Store, Study, Unit
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space


def proposer(
    config: SearchConfig,
    store: Store,
    study: Study,
    objectives: Sequence[Objective],
    say: Callable[[str], None] = lambda text: None,
) -> Proposer:
    """The proposer of a study, which has read nothing yet. Raises NasError if an objective cannot be evaluated here."""
    space, scores, baselines = factory.space(config), Scores(objectives), factory.baselines(config)
    costs = partial(factory.costs, config)
    return Proposer(store, study, space, scores, lambda: arms(config, space, scores, baselines), costs, say)


def arms(config: SearchConfig, space: Space, scores: Scores, baselines: Sequence[Architecture] = ()) -> list[Arm]:
    """The arms of a search, `main` first, without any knowledge. The baselines belong to `main`."""
    named = [
        (MAIN, config.strategy, config.main_share),
        *((name, arm.strategy, arm.share) for name, arm in config.arms.items()),
    ]
    return [
        Arm(
            name,
            share,
            space,
            factory.strategy(config, space, strategy, scores.candidate),
            factory.scheduler(config),
            scores,
            Allowance(config.budget, share, factory.step_tokens(config), partial(_step_flops, config)),
            baselines if name == MAIN else (),
        )
        for name, strategy, share in named
    ]


def _step_flops(config: SearchConfig, unit: Unit) -> float:
    """The FLOPs of one training step of a unit's model; an older version did not store them."""
    known = unit.step_flops
    return factory.costs(config, Architecture.parse(unit.architecture))[1] if known is None else known
