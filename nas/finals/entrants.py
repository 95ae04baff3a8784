"""Who takes part in the finals: the best of the search, the best of each control arm, and matched baselines."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from nas.config import checks
from nas.config.parts import parts
from nas.config.schema import GivenBaseline, SearchConfig
from nas.finals.plan import Plan
from nas.objectives.contract import Objective
from nas.report.trials import at_trial_depth
from nas.store import MAIN, Store, Study, Trial, TrialState
from searchspace.errors import SpaceError
from searchspace.matching import matched
from searchspace.model.architecture import Architecture

Role = Literal["finalist", "control", "baseline"]
MATCHED, NOTE = "baseline", "note"  # the keys under which a run of the finals keeps the name and note of its baseline
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

    If no trial of an arm trained as long, the arm takes part with the best of those that trained longest in it.
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
        first = next((each for each in every if each.arm == arm), None)
        if first is not None:
            controls.append(_of_trial(store, study, first, best_of(arm), "control"))
    return finalists, controls


def best_of(arm: str) -> str:
    """The name of the best of a control arm."""
    return f"best of arm {arm}"


def _of_trial(store: Store, study: Study, trial: Trial, name: str, role: Role) -> Entrant:
    architecture = Architecture.parse(store.trial(study.id, trial.number).architecture)
    return Entrant(name, role, trial.number, architecture, name)


@dataclass(frozen=True)
class Baselines:
    """The baselines of a winner. missing: what is not among them although the finals ask for it, one sentence each."""

    entrants: tuple[Entrant, ...]
    missing: tuple[str, ...] = ()


def baselines(config: SearchConfig, store: Store, study: Study, plan: Plan, winner: Entrant) -> Baselines:
    """The baselines of `winner`: each of `plan.baselines`, matched in each way, in each shape.

    A baseline that is the same model in another group or shape is listed once. Once its first run has started, a
    baseline stays what it was if it is matched in latency, because a second measurement differs, or if it is a name of
    the zoo, because a later version may change the file.
    """
    measure = _latency(config)
    started = _started(store, study, winner)
    shape = at_trial_depth(store, study, winner.trial, parts(config).shape)
    found: dict[str, Entrant] = {}
    missing: dict[str, None] = {}
    for given in plan.baselines:
        name = given.name if isinstance(given, GivenBaseline) else given
        family = Architecture.parse(given.text) if isinstance(given, GivenBaseline) else given
        for match in plan.match:
            for proportions in plan.shapes:
                label, group = _name(name, match, proportions), _group(name, match)
                stays = match == "latency" or isinstance(given, str)
                architecture, note = started.get(label, (None, "")) if stays else (None, "")
                if architecture is None:
                    try:
                        like = matched(
                            family, winner.architecture, match=match, shape=proportions, length=shape, measure=measure
                        )
                    except SpaceError as error:
                        missing[f"{group}: there is none. {error}"] = None
                        continue
                    architecture, note = like.architecture, like.note
                if architecture == winner.architecture:
                    missing[f"{label}: it is the winner's own architecture."] = None
                else:
                    made = Entrant(label, "baseline", winner.trial, architecture, group, note)
                    found.setdefault(architecture.hash, made)
    return Baselines(tuple(found.values()), tuple(missing))


SAME = {"parameters": "parameters", "flops": "FLOPs", "state": "state", "latency": "latency"}


def _group(name: str, match: str) -> str:
    return f"{name}, same {SAME[match]}"


def _name(name: str, match: str, proportions: str) -> str:
    return f"{_group(name, match)}, {proportions}"


def _latency(config: SearchConfig) -> Callable[[Architecture], float] | None:
    """Measures latency as the first such objective of the search does, on this machine; None if it has none."""
    written = zip(config.objectives, parts(config).objectives, strict=True)
    return next((each.evaluate for named, each in written if checks.is_latency_here(named)), None)


def _started(store: Store, study: Study, winner: Entrant) -> dict[str, tuple[Architecture, str]]:
    """The baselines of `winner` that have a run in the store, with their notes, by name."""
    trials = store.trials(study.id, purposes=("final",))
    own = [each for each in trials if each.parents == (winner.trial,) and isinstance(each.choices, dict)]
    found = {}
    for each in own:
        if MATCHED in each.choices:
            found[each.choices[MATCHED]] = Architecture.parse(each.architecture), each.choices.get(NOTE, "")
    return found


def recorded(entrant: Entrant) -> dict[str, str]:
    """What a run of `entrant` keeps of it."""
    return {MATCHED: entrant.name, NOTE: entrant.note} if entrant.role == "baseline" else {}
