"""What one process needs to work on a study: its arms, its objectives and the proposer, made from the search file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nas.config import factory
from nas.config.schema import Named, SearchConfig
from nas.engine.allowance import Allowance
from nas.engine.arm import Arm
from nas.engine.proposer import Proposer
from nas.engine.scores import Scores
from nas.objectives.contract import Objective
from nas.schedulers.checked import CheckedScheduler
from nas.schedulers.contract import Scheduler
from nas.store import MAIN, Store, Study, Trial, Unit
from nas.strategies.checked import CheckedStrategy
from nas.strategies.contract import Strategy
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
    costs, drawing = partial(factory.costs, config), partial(factory.drawing, config)
    version = store.space_versions(study.id)[-1].number

    read = partial(store.trial, study.id)

    def make_arms() -> list[Arm]:
        return arms(config, space, scores, baselines, space_version=version, read=read)

    return Proposer(store, study, space, scores, make_arms, costs, drawing, say, space_version=version)


def arms(
    config: SearchConfig,
    space: Space,
    scores: Scores,
    baselines: Sequence[Architecture] = (),
    *,
    space_version: int = 0,
    read: Callable[[int], Trial] | None = None,
) -> list[Arm]:
    """The arms of a search, `main` first, without any knowledge. The baselines belong to `main`.

    space_version: the number of `space`. read: reads the trial with a number, for a log without architectures.
    """
    named = [
        (MAIN, config.strategy, config.main_share, baselines),
        *((name, arm.strategy, arm.share, parsed(arm.architectures)) for name, arm in config.arms.items()),
    ]
    return [
        Arm(
            name,
            share,
            space,
            partial(_parts, config, space, strategy, scores),
            scores,
            Allowance(config.budget, share, factory.step_tokens(config), partial(_step_flops, config, read)),
            given,
            audited=config.audited,
            only_baselines=name != MAIN and bool(given),
            space_version=space_version,
            read=read,
        )
        for name, strategy, share, given in named
    ]


def _parts(config: SearchConfig, space: Space, named: Named, scores: Scores) -> tuple[Strategy, Scheduler]:
    """A strategy and a scheduler of an arm, without any knowledge. Their answers are checked."""
    scheduler = CheckedScheduler(config.scheduler.name, factory.running_scheduler(config))
    strategy = factory.running_strategy(config, space, named, scores.candidate)
    return CheckedStrategy(named.name, strategy, space), scheduler


def parsed(texts: Sequence[str]) -> list[Architecture]:
    """The architectures of an arm that were made by hand, from their texts."""
    return [Architecture.parse(text, "an architecture of an arm") for text in texts]


def _step_flops(config: SearchConfig, read: Callable[[int], Trial] | None, unit: Unit) -> float:
    """The FLOPs of one training step of a unit's model; an older version did not store them."""
    if unit.step_flops is not None:
        return unit.step_flops
    text = unit.architecture if unit.architecture or read is None else read(unit.number).architecture
    return factory.costs(config, Architecture.parse(text))[1]
