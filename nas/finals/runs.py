"""The runs of the finals: one architecture trained with one seed for one length, with options of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nas.finals.entrants import Entrant
from nas.finals.plan import Options, Plan
from nas.store import Trial, TrialState
from nas.store.records import TUNING

ENDED = (TrialState.COMPLETE, TrialState.FAILED)
Stage = Literal["tuning", "final"]


@dataclass(frozen=True)
class Run:
    """One run of an entrant. `key` identifies it in the store, so it is found again by every process."""

    entrant: Entrant
    stage: Stage
    steps: int
    seed: int
    options: Options

    @property
    def variant(self) -> str:
        """What tells it apart from other runs of the same architecture and seed."""
        return " ".join([f"steps={self.steps}", *(f"{name}={value}" for name, value in self.options.items())])

    @property
    def key(self) -> tuple[str, int, str]:
        """(hash of the architecture, seed, variant)."""
        return self.entrant.architecture.hash, self.seed, self.variant

    @property
    def operator(self) -> str:
        """As the store keeps it: `tuning` for runs that choose the options, else the role of the entrant."""
        return TUNING if self.stage == "tuning" else self.entrant.role


def tuning_runs(plan: Plan, group: Sequence[Entrant]) -> list[Run]:
    """One run for each try of each entrant of a group, at the shortest length; none if there is nothing to choose."""
    if len(group) * len(plan.tries) == 1:
        return []
    steps, seed = plan.lengths[0], plan.tuning_seed
    return [Run(entrant, "tuning", steps, seed, options) for entrant in group for options in plan.tries]


def final_runs(plan: Plan, entrant: Entrant, options: Options) -> list[Run]:
    """Every seed at every length, the longest first."""
    return [Run(entrant, "final", steps, seed, options) for steps in reversed(plan.lengths) for seed in plan.seeds]


def winner_runs(plan: Plan, winner: Entrant, options: Options) -> list[Run]:
    """The runs of the winner alone, every seed at every length."""
    return [Run(winner, "final", steps, seed, options) for steps in plan.winner_lengths for seed in plan.seeds]


class Recorded:
    """The trials of the finals that the store has, by the key of their run."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._trials = {(each.architecture_hash, each.seed, each.variant): each for each in trials}

    def trial(self, run: Run) -> Trial | None:
        """The trial of a run; None if no process has started it."""
        return self._trials.get(run.key)

    def has_started(self, run: Run) -> bool:
        """Whether a process has started it."""
        return run.key in self._trials

    def have_ended(self, runs: Sequence[Run]) -> bool:
        """Whether every run is complete or has failed."""
        return all((trial := self.trial(run)) is not None and trial.state in ENDED for run in runs)

    def complete(self, run: Run) -> Trial | None:
        """The trial of a run that ended well."""
        trial = self.trial(run)
        return trial if trial is not None and trial.state is TrialState.COMPLETE else None

    def failed(self, runs: Iterable[Run]) -> list[Trial]:
        """The trials of the runs that failed."""
        found = map(self.trial, runs)
        return [each for each in found if each is not None and each.state is TrialState.FAILED]
