"""Gives the trials of a study the values of a further objective, without training them again."""

from __future__ import annotations

import time
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

SECONDS = 5.0  # between two looks for further trials


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
    store: Store,
    study: Study,
    objective: Objective,
    say: Callable[[str], None] = lambda text: None,
    *,
    follow: bool = False,
) -> Iterator[Rescored]:
    """Find the value of every trained trial of the search, store it, and yield it.

    Trials that have it are left as they are, so an interrupted run goes on where it stopped. follow: wait for further
    trials until the search ends.
    """
    config = SearchConfig.stored(study.config)
    objective.begin(Search(factory.space(config), store, say, partial(evidence, store, study)))
    seen: set[int] = set()
    while True:
        ended = store.study(study.name).ending is not None  # before the reading: a trial may end in between
        for trial in store.trials(study.id, states=TRAINED, purposes=SEARCHED, light=True):
            if trial.number not in seen and trial.values:
                seen.add(trial.number)
                yield _rescored(store, study, objective, trial.number)
        if ended or not follow:
            return
        time.sleep(SECONDS)


def _rescored(store: Store, study: Study, objective: Objective, number: int) -> Rescored:
    trial = store.trial(study.id, number)
    if objective.name in trial.cheap_values:
        return Rescored(number, trial.cheap_values[objective.name], old=True)
    architecture = Architecture.parse(trial.architecture)
    try:
        value, found = objective.evaluate(architecture), objective.evidence(architecture)
    except NoValue as error:
        return Rescored(number, None, str(error))
    described = {"name": objective.name, "direction": str(objective.direction)}
    if not store.add_value(trial.id, described, value, found):  # another process was faster
        return Rescored(number, store.trial(study.id, number).cheap_values[objective.name], old=True)
    return Rescored(number, value)
