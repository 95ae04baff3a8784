"""Gives the trials of a study the values of a further objective, without training them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine.proposer import evidence
from nas.errors import UsageError
from nas.objectives import make
from nas.objectives.contract import NoValue, Objective, Search
from nas.objectives.registry import Spec
from nas.report.trials import SEARCHED, TRAINED
from nas.store import Store, Study
from searchspace.model.architecture import Architecture


@dataclass(frozen=True)
class Rescored:
    """What one trial got: a value, or the reason why it has none. old: it had the value already."""

    trial: int
    value: float | None
    reason: str = ""
    old: bool = False


def wanted(study: Study, spec: Spec) -> Objective:
    """The objective, for inputs of the shape of the study's task.

    Raises UsageError if it needs training, or if the search has an objective of this name.
    """
    config = SearchConfig.stored(study.config)
    objective = make(spec, factory.shape(config))
    if objective.stage != "cost":
        raise UsageError(f"objective {objective.name}: it needs a training or a probe, so trials cannot get it later.")
    if any(each.name == objective.name for each in factory.objectives(config)):
        raise UsageError(
            f"objective {objective.name}: the search has one of this name. Give the new one another, as in "
            "{latency: {phase: decode, name: laptop_ms}}."
        )
    return objective


def rescore(
    store: Store, study: Study, objective: Objective, say: Callable[[str], None] = lambda text: None
) -> Iterator[Rescored]:
    """Find the value of every trained trial of the search, store it, and yield it.

    Trials that have it are left as they are, so an interrupted run goes on where it stopped.
    """
    config = SearchConfig.stored(study.config)
    objective.begin(Search(factory.space(config), store, say, partial(evidence, store, study)))
    declared = {"name": objective.name, "direction": str(objective.direction)}
    for trial in store.trials(study.id, states=TRAINED, purposes=SEARCHED):
        if objective.name in trial.cheap_values:
            yield Rescored(trial.number, trial.cheap_values[objective.name], old=True)
            continue
        architecture = Architecture.parse(trial.architecture)
        try:
            value, found = objective.evaluate(architecture), objective.evidence(architecture)
        except NoValue as error:
            yield Rescored(trial.number, None, str(error))
            continue
        store.add_value(trial.id, declared, value, found)
        yield Rescored(trial.number, value)
