"""Which checkpoints of a study are still needed: `keep` in its search file.

    last  the last checkpoint of every trial: what can still be continued or exported
    best  those of the front, of the finals, and of trials that may still continue
    all   every checkpoint

The last checkpoint of a trial is that of its highest finished rung. Its next rung continues from it. A failed trial may
continue too: `nas search --retry-failed`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal

from nas.store import FINAL, TrialState

if TYPE_CHECKING:
    from nas.store.kept import Kept

Keep = Literal["last", "best", "all"]
DEFAULT: Keep = "last"
_CONTINUE = (TrialState.WAITING, TrialState.RUNNING, TrialState.FAILED)


def unneeded(kept: Iterable[Kept], keep: Keep, front: Collection[int]) -> list[Kept]:
    """The checkpoints that may be removed. front: the numbers of the trials on the front."""
    return [each for each in kept if keep != "all" and not _is_needed(each, keep, front)]


def _is_needed(each: Kept, keep: Keep, front: Collection[int]) -> bool:
    if each.highest is not None and each.rung < each.highest:
        return False
    return keep == "last" or each.state in _CONTINUE or each.purpose == FINAL or each.number in front


def most_kept(keep: Keep, units: Iterable[int], trials: int, finals: int) -> int:
    """How many checkpoints a search holds at once at most. units: of each rung; finals: units of the finals."""
    return (sum(units) if keep == "all" else trials) + finals
