"""Finds values for the trials of a study that its search does not find: of another objective, or on another machine.

A machine outside the cluster finds the values of the objectives that the search file leaves to it (`on: {machine:
NAME}`), while the search runs or after it. They are part of the study's log, so strategies learn from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine.proposer import evidence as evidence_of
from nas.errors import UsageError
from nas.objectives import make
from nas.objectives.contract import NoValue, Objective, Search
from nas.objectives.registry import Spec
from nas.report.trials import SEARCHED, TRAINED
from nas.store import Store, Study, Trial, TrialState
from nas.work import FailureKind
from searchspace.errors import SpaceError, nearest
from searchspace.language import documents
from searchspace.model.architecture import Architecture

SECONDS = 5.0  # between two looks for further trials
PROMISING = tuple(state for state in TrialState if state is not TrialState.FAILED)


@dataclass(frozen=True)
class Rescored:
    """What one trial got: a value, or the reason why it has none. old: it had the value already."""

    trial: int
    value: float | None
    reason: str = ""
    old: bool = False
    objective: str = ""


@dataclass(frozen=True)
class Wanted:
    """An objective to find. rung: of its probes in the study's log; None: the search knows nothing of it."""

    objective: Objective
    rung: int | None = None

    def of(self, trial: Trial) -> bool:
        """Whether a trial gets the value: at once if the search waits for it, else once it is trained."""
        return self.rung is not None or (trial.state in TRAINED and bool(trial.values))


def wanted(study: Study, spec: Spec) -> Objective:
    """The objective, for inputs of the shape of the study's task.

    Raises UsageError if it needs training, says where it is measured, has a wrong name or an option without effect, or
    if the search has an objective of this name.
    """
    config = SearchConfig.stored(study.config)
    objective = make(spec, parts(config).shape)
    if objective.placed:
        raise UsageError(f"objective {objective.name}: it is found where this command runs, so leave out `on`.")
    if objective.stage != "cost":
        raise UsageError(f"objective {objective.name}: it needs a training or a probe, so trials cannot get it later.")
    if objective.refused and all(each["name"] != objective.name for each in study.objectives):
        raise UsageError(f"objective {objective.name}: {objective.refused}.")
    if any(each.name == objective.name for each in parts(config).objectives):
        raise UsageError(
            f"objective {objective.name}: the search has one of this name. Give the new one another, as in "
            "{latency: {phase: decode, name: laptop_ms}}."
        )
    return objective


def written(study: Study, text: str) -> Objective:
    """As `wanted`, for an objective as it is written in a search file. Raises UsageError."""
    try:
        return wanted(study, documents.parse(text, "--objective").data)
    except SpaceError as error:
        raise UsageError(f"--objective: {error}") from None


def left_to(study: Study, machine: str) -> list[Wanted]:
    """The objectives that the search file of a study leaves to a machine.

    Raises UsageError if there are none, with the nearest name.
    """
    config = SearchConfig.stored(study.config)
    listed = list(enumerate(zip(config.objectives, parts(config).objectives, strict=True), 1))
    machines = sorted({each.machine for _, (_, each) in listed if each.machine})
    if machine not in machines:
        known = f" Known: {', '.join(machines)}." if machines else " It leaves none to any machine."
        raise UsageError(
            f"The study {study.name!r} leaves no objective to the machine {machine!r}.{nearest(machine, machines)}"
            f"{known} A search file does so with `on: {{machine: NAME}}`."
        )
    found = []
    for rung, (written, each) in listed:
        if each.machine == machine:
            here = {name: value for name, value in written.options.items() if name != "on"}
            found.append(Wanted(make({written.name: here}, parts(config).shape), rung))
    return found


def rescore(
    store: Store,
    study: Study,
    objective: Objective,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Rescored]:
    """Find the value of every trained trial of the search, store it, and yield it.

    Trials that have it are left as they are, so an interrupted run goes on where it stopped.
    """
    return find(store, study, [Wanted(objective)], say)


def find(
    store: Store,
    study: Study,
    some: Sequence[Wanted],
    say: Callable[[str], None] = lambda text: None,
    *,
    follow: bool = False,
) -> Iterator[Rescored]:
    """As `rescore`, for several objectives; those of the search file do not wait for a trial's training.

    follow: wait for further trials until the search ends. An objective that cannot be found here is left out, with a
    message that gives the reason; raises UsageError if there is no other.
    """
    some = _begun(store, study, some, say)
    seen: set[tuple[int, int | None]]
    seen = {(unit.number, unit.rung) for unit in store.results_since(study.id, light=True) if unit.later}
    while True:
        ended = store.study(study.name).ending is not None  # before the reading: a trial may end in between
        for trial in store.trials(study.id, states=PROMISING, purposes=SEARCHED, light=True):
            for each in some:
                if (trial.number, each.rung) not in seen and each.of(trial):
                    seen.add((trial.number, each.rung))
                    yield _found(store, study, each, trial.number)
        if ended or not follow:
            return
        time.sleep(SECONDS)


def _begun(store: Store, study: Study, some: Sequence[Wanted], say: Callable[[str], None]) -> list[Wanted]:
    """Those that can be found here. Tells why others cannot; raises UsageError if none can."""
    config = SearchConfig.stored(study.config)
    search = Search(parts(config).space, store, say, partial(evidence_of, store, study))
    found, errors = [], []
    for each in some:
        try:
            _check_kind(store, study, each)
            each.objective.begin(search)
            found.append(each)
        except UsageError as error:
            errors.append(error)
    if errors and not found:
        raise errors[0]
    for why in errors:
        say(f"Left out: {why}")
    return found


def _check_kind(store: Store, study: Study, wanted: Wanted) -> None:
    """Raises UsageError if the study has computed values under the name of a measured objective, or the reverse."""
    objective = wanted.objective
    listed = wanted.rung is None and any(each["name"] == objective.name for each in study.objectives)
    measures = type(objective).evidence is not Objective.evidence
    if listed and measures != (next(evidence_of(store, study, objective.name), None) is not None):
        raise UsageError(
            f"objective {objective.name}: the study has values of another objective with this name. Give a latency "
            "another name, as in {latency: {phase: decode, name: laptop_ms}}."
        )


def _found(store: Store, study: Study, wanted: Wanted, number: int) -> Rescored:
    objective, trial = wanted.objective, store.trial(study.id, number)
    result = partial(Rescored, number, objective=objective.name)
    if objective.name in trial.cheap_values:
        return result(trial.cheap_values[objective.name], old=True)
    architecture = Architecture.parse(trial.architecture)
    metrics = {} if trial.rung is None else store.metrics(study.id, number, trial.rung)
    finite = {name: value for name, value in metrics.items() if value is not None}  # they say how deep its blocks went
    try:
        value, evidence = objective.evaluate(architecture, finite), objective.evidence(architecture)
    except NoValue as error:
        if wanted.rung is not None:
            store.add_no_value(trial.id, wanted.rung, (FailureKind.NO_VALUE.value, str(error)))
        return result(None, str(error))
    described = {"name": objective.name, "direction": str(objective.direction)}
    check = None if evidence is None else objective.check_like  # another device may have started at the same moment
    if not store.add_value(trial.id, described, value, evidence, rung=wanted.rung, check=check):
        # another process was faster
        faster = store.trial(study.id, number).cheap_values.get(objective.name)
        return result(faster, "" if faster is not None else "another process found that it does not run", old=True)
    return result(value)
