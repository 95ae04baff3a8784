"""Why a search ended and what its budget cut off. The study keeps it, so that every result can say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nas.config.schema import Budget
from nas.engine.arm import Arm
from nas.engine.proposer import Proposer
from nas.engine.source import ProposedNothing
from nas.report import control
from nas.report.finals import answers
from nas.schedulers.contract import Promotion
from nas.store import Reader, Study

MINUTES, SPACE, STRATEGY, TRIALS = "minutes", "space", "strategy", "trials"
# Options that add no trial to a search that has ended.
WITHOUT_TRIALS = {"finals", "runner", "keep", "checkpoints", "device", "limits"}


def end(proposer: Proposer, budget: Budget, *, time_is_up: bool = False, again: bool = False) -> None:
    """Record that the search has ended, and stop the trials that wait for a promotion. Call it once.

    again: it has ended before, and why stays stored. It does nothing if another process has given the search other
    trials meanwhile, such as those of a larger budget.
    """
    store, study = proposer.store, proposer.study
    if not same_trials(store.study(study.name).config, study.config):
        return
    if not again:
        found = ending(proposer, budget, time_is_up=time_is_up)
        store.update_study(study.id, ending=found | control.to_keep(store, study))
    store.stop_trials(study.id)


def ending(proposer: Proposer, budget: Budget, *, time_is_up: bool) -> dict[str, Any]:
    """limit: the limit of the budget that ended the search, `space` if nothing was left to propose, or `strategy` if
    the strategy proposed nothing. not_started: trials of the budget that were not started; None if it does not limit
    trials. not_promoted: trials that did well enough to continue. Call it once, when the search has ended: the arms
    then count these trials as promoted."""
    arms = list(proposer.arms.values())
    started = sum(arm.trials for arm in arms)
    left = None if budget.trials is None else max(0, budget.trials - started)
    cut = sum(_not_promoted(arm) for arm in arms)
    spent = next((arm.allowance.spent for arm in arms if arm.allowance.spent), None)
    if time_is_up and (left is None or left or cut):
        limit = MINUTES
    elif proposer.exhausted:
        limit = STRATEGY if isinstance(proposer.exhausted, ProposedNothing) else SPACE
    else:
        limit = spent if spent and (left is None or left or cut) else TRIALS
    return {"limit": limit, "not_started": left, "not_promoted": cut}


def _not_promoted(arm: Arm) -> int:
    count = 0
    while isinstance(promotion := arm.scheduler.promotion(), Promotion):
        arm.scheduler.started(promotion.number, promotion.rung, promotion.steps)
        count += 1
    return count


def same_trials(options: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether two stored search files agree in all options that decide which trials there are."""
    names = (options.keys() | others.keys()) - WITHOUT_TRIALS
    return all(options.get(name) == others.get(name) for name in names)


def is_over(store: Reader, study: Study, options: Mapping[str, Any]) -> bool:
    """Whether a search that stores `options` would add no trial to `study`; its finals may train some."""
    # With more workers there is time for more trials, and a corrected strategy proposes some.
    if not study.ending or study.ending.get("limit") in (MINUTES, STRATEGY):
        return False
    return same_trials(options, study.config) and not store.open_units(study.id)


def have_ended(store: Reader, study: Study, finals: Mapping[str, Any]) -> bool:
    """Whether these finals, as a study stores them, have a verdict or are none, and no unit has ended since."""
    if not finals["top"]:
        return True
    found = store.verdict(study.id)
    if found is None or found.document["sequence"] != store.mark(study.id).sequence:
        return False
    return answers(found.document, finals)
