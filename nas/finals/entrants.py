"""Who takes part in the finals: the best of the search, the best of each control arm, and matched baselines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from nas.config import factory
from nas.config.schema import GivenBaseline, SearchConfig
from nas.finals.plan import Plan
from nas.objectives.contract import Objective
from nas.report.depth import at_trial_depth
from nas.store import MAIN, Store, Study, Trial, TrialState
from searchspace.errors import SpaceError
from searchspace.matching import Matched, matched
from searchspace.model.architecture import Architecture

Role = Literal["finalist", "control", "baseline"]
TRAINED = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.STOPPED)  # the last two have the values of their rung


@dataclass(frozen=True)
class Entrant:
    """One architecture of the finals.

    trial: of the search; for a baseline that of the winner which it is matched to. group: baselines of one group differ
    in their shape alone, and only the better shape is trained to the end; every other entrant is a group of its own.
    note: how far a baseline is from the size that it should have, "" if it is near.
    """

    name: str
    role: Role
    trial: int
    architecture: Architecture
    group: str
    note: str = ""


def best_of_search(
    config: SearchConfig, store: Store, study: Study, objective: Objective, entered: Collection[int] = ()
) -> tuple[list[Entrant], list[Entrant]]:
    """(finalists, controls): the best of arm `main` that trained longest, and the best of each other arm.

    entered: trials that are finalists already.
    """
    every = store.best(study.id, objective.name, None, states=TRAINED, purposes=("search",), longest=True)
    longest = every[0].steps if every else 0
    ranked = [each for each in every if each.steps == longest]
    best = [each.number for each in ranked if each.arm == MAIN][: config.finals.top]
    own = [each for each in every if each.number in {*best, *entered}]
    finalists = [_of_trial(store, study, each, f"trial {each.number}", "finalist") for each in own]
    controls = []
    for arm in config.arms:
        first = next((each for each in ranked if each.arm == arm), None)
        if first is not None:
            controls.append(_of_trial(store, study, first, f"best of arm {arm}", "control"))
    return finalists, controls


def _of_trial(store: Store, study: Study, trial: Trial, name: str, role: Role) -> Entrant:
    architecture = Architecture.parse(store.trial(study.id, trial.number).architecture)
    return Entrant(name, role, trial.number, architecture, name)


def baselines(config: SearchConfig, store: Store, study: Study, plan: Plan, winner: Entrant) -> list[Entrant]:
    """The baselines of `winner`: each of `plan.baselines`, matched in each way, in each shape.

    A baseline that is the same model in another group or shape is listed once. One that cannot be made is left out;
    `nas plan` names it.
    """
    shape = at_trial_depth(store, study, winner.trial, factory.shape(config))
    found: dict[str, Entrant] = {}
    for given in plan.baselines:
        name = given.name if isinstance(given, GivenBaseline) else given
        family = Architecture.parse(given.text) if isinstance(given, GivenBaseline) else given
        for match in plan.match:
            for proportions in plan.shapes:
                try:
                    made = matched(family, winner.architecture, match=match, shape=proportions, length=shape)
                except SpaceError:
                    continue
                if made.architecture != winner.architecture:
                    found.setdefault(made.architecture.hash, _baseline(name, match, proportions, winner, made))
    return list(found.values())


SAME = {"parameters": "parameters", "flops": "FLOPs", "state": "state"}


def _baseline(name: str, match: str, proportions: str, winner: Entrant, made: Matched) -> Entrant:
    group = f"{name}, same {SAME[match]}"
    return Entrant(f"{group}, {proportions}", "baseline", winner.trial, made.architecture, group, made.note)
