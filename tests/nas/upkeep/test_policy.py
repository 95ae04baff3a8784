"""Which checkpoints each policy keeps."""

import pytest

from nas.store import TrialState
from nas.store.kept import Kept
from nas.upkeep.policy import most_kept, unneeded


def kept(number: int, state: TrialState, highest: int, rung: int, purpose: str = "search") -> Kept:
    return Kept(number, purpose, state, highest, rung, f"trial-{number}-rung-{rung}")


SOME = [
    kept(0, TrialState.COMPLETE, 1, 0),
    kept(0, TrialState.COMPLETE, 1, 1),  # on the front
    kept(1, TrialState.COMPLETE, 1, 1),
    kept(2, TrialState.RUNNING, 0, 0),
    kept(3, TrialState.STOPPED, 0, 0),
    kept(4, TrialState.FAILED, 0, 0),
    kept(5, TrialState.COMPLETE, 0, 0, "final"),
]


@pytest.mark.parametrize(
    ("keep", "removed"),
    [
        ("all", []),
        ("last", [(0, 0)]),
        ("best", [(0, 0), (1, 1), (3, 0)]),
    ],
)
def test_a_policy_removes_what_it_does_not_need(keep, removed):
    assert [(each.number, each.rung) for each in unneeded(SOME, keep, {0})] == removed


def test_a_stopped_trial_on_the_front_keeps_its_checkpoint():
    assert not unneeded([kept(3, TrialState.STOPPED, 0, 0)], "best", {3})


def test_only_all_keeps_a_checkpoint_of_every_unit():
    assert [most_kept(keep, [9, 3, 1], 9, 4) for keep in ("all", "last", "best")] == [17, 13, 13]
