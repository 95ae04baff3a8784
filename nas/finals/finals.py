"""The finals: the best architectures and strong baselines, each tuned, trained again with several seeds and lengths.

Ranks at a small budget may differ from ranks at a larger one, and the best of many noisy scores is partly luck. So the
finalists are trained again with new seeds. First every entrant tries the same options (such as learning rates) on
validation data. Then it is trained with the best of them. The winner is the best finalist on validation data at the
longest length. The baselines are matched to it, tuned and trained in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from nas.config.schema import SearchConfig
from nas.finals import entrants
from nas.finals.entrants import Baselines, Entrant
from nas.finals.plan import Options, Plan, plan
from nas.objectives.contract import Objective
from nas.store import Refusal, Store, Study, Trial, TrialAdded, TrialState, Unit
from nas.store.records import FINAL, TUNING

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


class StoredRuns:
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


class Finals:
    """The finals of a study: which runs are still to be trained, and which entrant is best.

    Everything follows from the search file and the trials in the store. So any process continues them, and trials are
    used again if a larger budget brings other finalists.
    """

    def __init__(self, config: SearchConfig, store: Store, study: Study, objectives: Sequence[Objective]):
        self.config, self.store, self.study = config, store, study
        self.objective = objectives[0]
        self.plan = plan(config)
        self._trials: dict[int, Trial] = {}  # by number, as read last
        self._first = 0  # all final trials before this number are complete, so they are not read again

    def next_units(self, owner: str, seconds: float) -> list[Unit]:
        """The next unit of the finals that no process has started, leased; none if all were started."""
        for run in self.missing():
            unit = self._add(run, owner, seconds)
            if unit is not None:
                return [unit]
        return []

    def _add(self, run: Run, owner: str, seconds: float) -> Unit | None:
        """None if another process added it a moment ago."""
        while True:
            added = self.store.add_trial(
                self.study.id,
                self.store.next_number(self.study.id, FINAL),
                (run.entrant.architecture.hash, run.entrant.architecture.text()),
                seed=run.seed,
                purpose=FINAL,
                operator=run.operator,
                parents=(run.entrant.trial,),
                choices=entrants.recorded(run.entrant),
                known_results=0,
                steps=run.steps,
                owner=owner,
                lease_seconds=seconds,
                variant=run.variant,
                recipe=run.options,
            )
            if isinstance(added, TrialAdded):
                return added.unit
            if added.reason is not Refusal.NUMBER_TAKEN:
                return None

    def missing(self) -> Iterator[Run]:
        """The runs that no process has started and that can start now."""
        recorded = self.recorded()
        yield from (run for run in self._ready(recorded) if not recorded.has_started(run))

    def recorded(self) -> StoredRuns:
        """The trials of the finals as the store has them now."""
        read = self.store.trials(self.study.id, purposes=(FINAL,), first=self._first, light=True)
        self._trials |= {each.number: each for each in read}
        open_or_failed = (each.number for each in read if each.state is not TrialState.COMPLETE)
        self._first = min(open_or_failed, default=max(self._trials, default=-1) + 1)
        return StoredRuns(self._trials.values())

    def _ready(self, recorded: StoredRuns) -> Iterator[Run]:
        """The runs whose options are known: of finalists and controls, then of baselines once the winner is known."""
        own = [*self.finalists, *self.controls]
        for each in own:
            yield from self.runs(recorded, [each])
        if not all(self.has_ended(recorded, [entrant]) for entrant in self.finalists):
            return
        winner = self.winner(recorded)
        if winner is not None:
            for group in self.groups(winner):
                yield from self.runs(recorded, group)
            yield from self.runs_alone(recorded, winner)

    def runs(self, recorded: StoredRuns, group: Sequence[Entrant]) -> list[Run]:
        """The runs of a group as far as they are known: first all tries, then those of the entrant that did best."""
        tries = tuning_runs(self.plan, group)
        if not recorded.have_ended(tries):
            return tries
        chosen = self.chosen(recorded, group)
        return tries if chosen is None else [*tries, *final_runs(self.plan, *chosen)]

    def runs_alone(self, recorded: StoredRuns, winner: Entrant) -> list[Run]:
        """The runs of the winner at lengths that no other entrant is trained for."""
        chosen = self.chosen(recorded, [winner])
        return [] if chosen is None else winner_runs(self.plan, *chosen)

    def has_ended(self, recorded: StoredRuns, group: Sequence[Entrant]) -> bool:
        """Whether every run of a group has ended."""
        return recorded.have_ended(self.runs(recorded, group))

    def chosen(self, recorded: StoredRuns, group: Sequence[Entrant]) -> tuple[Entrant, Options] | None:
        """The entrant and the options that did best on validation data; None if every try failed."""
        tries = tuning_runs(self.plan, group)
        if not tries:
            return group[0], self.plan.tries[0]
        found = [(self._value(trial.values), run) for run in tries if (trial := recorded.complete(run))]
        if not found:
            return None
        _, best = min(found, key=lambda each: each[0])
        return best.entrant, best.options

    def winner(self, recorded: StoredRuns) -> Entrant | None:
        """The finalist with the best mean on validation data at the longest length, among those with most runs."""
        return next(iter(self.ranked(recorded, self.finalists)), None)

    def ranked(self, recorded: StoredRuns, some: Sequence[Entrant]) -> list[Entrant]:
        """The entrants that have a result at the longest length, best first."""
        found = []
        for entrant in some:
            values = self.values(recorded, entrant, self.plan.longest)
            if values:
                found.append((-len(values), fmean(values), entrant))
        return [entrant for *_, entrant in sorted(found, key=lambda each: each[:2])]

    def values(self, recorded: StoredRuns, entrant: Entrant, steps: int) -> list[float]:
        """The first objective on validation data, minimised, of the runs of an entrant that ended well."""
        complete = (recorded.complete(run) for run in self.runs(recorded, [entrant]))
        return [
            self._value(trial.values)
            for trial in complete
            if trial is not None and trial.steps == steps and trial.seed in self.plan.seeds
        ]

    def _value(self, values: Mapping[str, float]) -> float:
        return self.objective.minimised(values[self.objective.name])

    @cached_property
    def finalists(self) -> list[Entrant]:
        """The best architectures of the search."""
        return self._of_search[0]

    @cached_property
    def controls(self) -> list[Entrant]:
        """The best architecture of each control arm."""
        return self._of_search[1]

    @property
    def empty_arms(self) -> tuple[str, ...]:
        """The control arms without a finished trial."""
        present = {each.name for each in self.controls}
        return tuple(arm for arm in self.config.arms if entrants.best_of(arm) not in present)

    @cached_property
    def _of_search(self) -> tuple[list[Entrant], list[Entrant]]:
        """Architectures that entered before stay, if a larger budget brings others."""
        trials = self.store.trials(self.study.id, purposes=(FINAL,))
        entered = {trial.parents[0] for trial in trials if trial.operator == "finalist"}
        return entrants.best_of_search(self.config, self.store, self.study, self.objective, entered)

    def groups(self, winner: Entrant) -> list[list[Entrant]]:
        """The baselines of a winner. Those of one group differ in their shape alone."""
        groups: dict[str, list[Entrant]] = {}
        for each in self.baselines(winner).entrants:
            groups.setdefault(each.group, []).append(each)
        return list(groups.values())

    def baselines(self, winner: Entrant) -> Baselines:
        """The baselines of a winner, and those that could not be made."""
        if self._matched is None or self._matched[0] != winner.trial:
            self._matched = winner.trial, entrants.baselines(self.config, self.store, self.study, self.plan, winner)
        return self._matched[1]

    _matched: tuple[int, Baselines] | None = None
