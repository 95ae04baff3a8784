"""What one process needs to work on a study: its arms, its objectives and the proposer, made from the resolved file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nas.config.parts import Parts
from nas.config.schema import Named
from nas.engine.allowance import Allowance
from nas.engine.arm import Arm
from nas.engine.proposer import Proposer
from nas.engine.scores import Scores
from nas.schedulers.contract import Scheduler
from nas.store import MAIN, Store, Study, Trial
from nas.strategies.contract import Strategy
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space


def proposer(built: Parts, store: Store, study: Study, say: Callable[[str], None] = lambda text: None) -> Proposer:
    """The proposer of a study, which has read nothing yet. Raises NasError if an objective cannot be evaluated here."""
    scores, version = Scores(built.objectives), store.space_versions(study.id)[-1].number
    read = partial(store.trial, study.id)

    def make_arms() -> list[Arm]:
        return arms(built, built.space, scores, space_version=version, read=read)

    return Proposer(
        store, study, built.space, scores, make_arms, built.costs, built.drawing, say, space_version=version
    )


def arms(
    built: Parts,
    space: Space,
    scores: Scores,
    *,
    space_version: int = 0,
    read: Callable[[int], Trial] | None = None,
) -> list[Arm]:
    """The arms of a search, `main` first, without any knowledge. The baselines belong to `main`.

    space, space_version: one version of the study's space, and its number. read: reads the trial with a number, for a
    log without architectures.
    """
    config = built.config
    named = [
        (MAIN, config.strategy, config.main_share, built.baselines),
        *((name, arm.strategy, arm.share, _by_hand(arm.architectures)) for name, arm in config.arms.items()),
    ]
    return [
        Arm(
            name,
            share,
            space,
            partial(_new, built, space, strategy, scores),
            scores,
            Allowance(config.budget, share, built.task.shape.rows),
            given,
            only_baselines=name != MAIN and bool(given),
            space_version=space_version,
            read=read,
        )
        for name, strategy, share, given in named
    ]


def _new(built: Parts, space: Space, named: Named, scores: Scores) -> tuple[Strategy, Scheduler]:
    """A strategy and a scheduler of an arm, without any knowledge."""
    return built.strategy(named, space, scores.candidate), built.scheduler()


def _by_hand(texts: tuple[str, ...]) -> list[Architecture]:
    return [Architecture.parse(text, "an architecture of an arm") for text in texts]
