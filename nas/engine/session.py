"""What one process needs to work on a study: its arms, its objectives and the proposer, made from the search file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine.arm import Arm
from nas.engine.proposer import Proposer
from nas.engine.scores import Scores
from nas.objectives.contract import Objective
from nas.store import MAIN, Store, Study
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
    return Proposer(store, study, space, scores, lambda: arms(config, space, scores, baselines), say)


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
            baselines if name == MAIN else (),
        )
        for name, strategy, share in named
    ]
