"""The depth at which the FLOPs of a trial with halting blocks are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.store import UnitState

if TYPE_CHECKING:
    from nas.store import Reader, Study
    from searchspace.cost import Shape


def at_trial_depth(store: Reader, study: Study, number: int, shape: Shape) -> Shape:
    """`shape` with the mean depth that the last finished rung of trial `number` measured; unchanged if there is none.

    The objective `flops` uses the same depth, so every command prints the same number for the trial.
    """
    done = [unit.rung for unit in store.units(study.id, number) if unit.state is UnitState.DONE]
    return shape.at_depth(store.metrics(study.id, number, done[-1])) if done else shape
