"""Why a search ended and what its budget cut off. The study keeps it, so that every result can say it."""

from __future__ import annotations

from typing import Any

from nas.config.schema import Budget
from nas.engine.arm import Arm
from nas.engine.proposer import Proposer
from nas.schedulers.contract import Promotion

MINUTES, SPACE, TRIALS = "minutes", "space", "trials"


def ending(proposer: Proposer, budget: Budget, *, time_is_up: bool) -> dict[str, Any]:
    """limit: the limit of the budget that ended the search, or `space` if nothing was left to propose. not_started:
    trials of the budget that were not started; None if it does not limit trials. not_promoted: trials that did well
    enough to continue. Call it once, when the search has ended: the arms then count these trials as promoted."""
    arms = list(proposer.arms.values())
    started = sum(arm.trials for arm in arms)
    left = None if budget.trials is None else max(0, budget.trials - started)
    cut = sum(_not_promoted(arm) for arm in arms)
    spent = next((arm.allowance.spent for arm in arms if arm.allowance.spent), None)
    if time_is_up and (left is None or left or cut):
        limit = MINUTES
    elif proposer.exhausted:
        limit = SPACE
    else:
        limit = spent if spent and (left is None or left or cut) else TRIALS
    return {"limit": limit, "not_started": left, "not_promoted": cut}


def _not_promoted(arm: Arm) -> int:
    count = 0
    while isinstance(promotion := arm.scheduler.promotion(), Promotion):
        arm.scheduler.started(promotion.number, promotion.rung, promotion.steps)
        count += 1
    return count
