"""Which processes work on a study. This file defines running, paused and interrupted for units, trials and studies.

A unit that has not ended is
    running      if a process holds its lease: the lease has not expired, and the process is not known to be gone
    interrupted  if it was leased, but the lease has expired or its process is gone; the next search takes it over
    paused       if it is queued, so that no process holds it
A trial or a study that has not ended is running if one of its units is running, interrupted if none is running but one
is interrupted, and paused otherwise. So a trial that waits for its first unit or for its next rung is paused. A study
has ended if none of its trials is open, and its search has recorded its end or all trials of its budget were started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from nas.engine import leases
from nas.store import TrialState, UnitState
from nas.store.records import FINAL, SEARCH

if TYPE_CHECKING:
    from nas.store import Reader, Study, Unit


class Activity(StrEnum):
    """The activity of a unit, trial or study that has not ended."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"


@dataclass(frozen=True, kw_only=True)
class UnitProgress:
    """A unit that has not ended. `step`, `loss` and `tokens_per_second` are as of `reported_at`; None before a report.

    `number` is that of its trial; `final` counts the trials of the finals from 1 and is None in the search.
    """

    number: int
    final: int | None
    arm: str
    kind: str
    rung: int
    steps: int  # in all, at the end of the unit
    activity: Activity
    owner: str | None
    step: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    reported_at: datetime | None = None

    @property
    def name(self) -> str:
        """The name in messages: trial 3 rung 1, or final 2."""
        if self.final is not None:
            return f"final {self.final}"
        return f"trial {self.number} " + ("probe" if self.kind == "probe" else f"rung {self.rung}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return vars(self) | {
            "activity": self.activity.value,
            "reported_at": self.reported_at and self.reported_at.isoformat(),
        }


def progress(store: Reader, study: Study) -> list[UnitProgress]:
    """The units of `study` that have not ended: running ones first, then by trial."""
    found = [_progress(unit) for unit in store.unfinished(study.id)]
    order = list(Activity)
    return sorted(found, key=lambda each: (order.index(each.activity), each.number, each.rung))


def of_unit(unit: Unit) -> Activity:
    """The activity of a unit that has not ended."""
    if unit.state is UnitState.QUEUED or unit.owner is None:
        return Activity.PAUSED
    return Activity.INTERRUPTED if unit.expired or leases.is_dead(unit.owner) else Activity.RUNNING


def of_all(activities: Iterable[Activity]) -> Activity:
    """The activity of a trial or study whose units have these: the first in `Activity`; paused without units."""
    found = set(activities)
    return next((each for each in Activity if each in found), Activity.PAUSED)


def of_study(study: Study, counts: Mapping[tuple[str, str], int], units: Sequence[UnitProgress]) -> Activity | None:
    """The activity of a study; None if it has ended, or has no trial yet.

    counts: {(purpose, state): trials}. units: those that have not ended.
    """
    is_open = units or any(state == TrialState.RUNNING for _, state in counts)
    is_over = not counts or study.ending or _trials_are_spent(study, counts)
    return None if is_over and not is_open else of_all(unit.activity for unit in units)


def _trials_are_spent(study: Study, counts: Mapping[tuple[str, str], int]) -> bool:
    """Whether all trials of the budget were started."""
    planned = (study.config.get("budget") or {}).get("trials")
    return planned is not None and sum(count for (purpose, _), count in counts.items() if purpose == SEARCH) >= planned


def state_of_study(study: Study, counts: Mapping[tuple[str, str], int], units: Sequence[UnitProgress]) -> str:
    """The state of a study: searching or in the finals if it is running; interrupted, paused, ended or not started."""
    doing = of_study(study, counts, units)
    if doing is Activity.RUNNING:
        return "in the finals" if any(purpose == FINAL for purpose, _ in counts) else "searching"
    if doing is None:
        return "ended" if counts else "not started"
    return doing.value


def by_trial(units: Iterable[UnitProgress]) -> dict[int, Activity]:
    """{number of the trial: activity}, for the trials with a unit that has not ended."""
    seen: dict[int, list[Activity]] = {}
    for unit in units:
        seen.setdefault(unit.number, []).append(unit.activity)
    return {number: of_all(each) for number, each in seen.items()}


def _progress(unit: Unit) -> UnitProgress:
    return UnitProgress(
        number=unit.number,
        final=unit.final,
        arm=unit.arm,
        kind=unit.kind.value,
        rung=unit.rung,
        steps=unit.steps,
        activity=of_unit(unit),
        owner=unit.owner,
        step=unit.progress_step,
        loss=unit.progress_loss,
        tokens_per_second=unit.progress_rate,
        reported_at=unit.progress_at,
    )
