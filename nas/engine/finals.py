"""The finals: the best architectures and a Transformer of the winner's size, trained again, and a verdict.

Ranks at a small budget may differ from ranks at a larger one, and the best of many noisy scores is partly luck. So the
finalists are trained again, longer and with new seeds. The winner is chosen on validation data and compared with the
Transformer on test data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from nas import metrics
from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine.verdict import Verdict, compare
from nas.objectives.contract import Objective
from nas.store import MAIN, Refusal, Store, Study, Trial, TrialAdded, TrialState, Unit
from searchspace.matching import matched
from searchspace.model.architecture import Architecture

SEEDS_APART = 1000
FINALIST, BASELINE = "finalist", "final baseline"
ENDED = (TrialState.COMPLETE, TrialState.FAILED)
TRAINED = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.STOPPED)  # the last two have the values of their rung


@dataclass(frozen=True)
class Finalist:
    """One architecture of the finals, which several trials trained, each with its own seed."""

    number: int  # the trial of the search; for the baseline, the winner's trial
    architecture: Architecture
    validation: tuple[float, ...]  # the first objective, one value a seed
    test: tuple[float, ...]  # the same on test data if the task has them, else `validation`
    trials: tuple[int, ...]  # the trials of the finals


@dataclass(frozen=True)
class Report:
    """How a search ended."""

    objective: str
    finalists: tuple[Finalist, ...]  # best first
    baseline: Finalist | None
    verdict: Verdict | None
    transformer_won: bool = False  # the winner is itself the Transformer of its size

    @property
    def winner(self) -> Finalist:
        """The best finalist on validation data."""
        return self.finalists[0]


class Finals:
    """The finals of a study: which trials are still to be trained, and the result.

    A trial of the finals is identified by its architecture and its seed. So trials are used again if a larger budget
    brings other finalists. The seeds depend on `finals.steps`, so trials of different lengths are never mixed.
    """

    def __init__(self, config: SearchConfig, store: Store, study: Study, objectives: Sequence[Objective]):
        self.config, self.store, self.study = config, store, study
        self.objective = objectives[0]
        first = study.seed + config.finals.steps * SEEDS_APART + 1  # the search's own seed is not among them
        self.seeds = range(first, first + config.finals.seeds)

    def next_units(self, owner: str, seconds: float) -> list[Unit]:
        """The next unit of the finals that no process has started, leased; none if all were started."""
        for source, architecture, operator, seed in self._missing():
            unit = self._add(source, architecture, operator, seed, owner, seconds)
            if unit is not None:
                return [unit]
        return []

    def _add(
        self, source: int, architecture: Architecture, operator: str, seed: int, owner: str, seconds: float
    ) -> Unit | None:
        """None if another process added it a moment ago."""
        while True:
            added = self.store.add_trial(
                self.study.id,
                self.store.next_number(self.study.id),
                (architecture.hash, architecture.text()),
                seed=seed,
                purpose="final",
                operator=operator,
                parents=(source,),
                choices={},
                known_results=0,
                steps=self.config.finals.steps,
                owner=owner,
                lease_seconds=seconds,
            )
            if isinstance(added, TrialAdded):
                return added.unit
            if added.reason is not Refusal.NUMBER_TAKEN:
                return None

    def _missing(self) -> Iterator[tuple[int, Architecture, str, int]]:
        """(source trial, architecture, operator, seed) of missing trials; the baseline's once the winner is known."""
        trials = self._trials()
        started = {(trial.architecture_hash, trial.seed) for trial in trials}
        ended = {(trial.architecture_hash, trial.seed) for trial in trials if trial.state in ENDED}
        entrants = [(number, architecture, FINALIST) for number, architecture in self.chosen]
        if all((architecture.hash, seed) in ended for _, architecture, _ in entrants for seed in self.seeds):
            finalists = self._finalists(trials)
            entrants = [(each.number, self._transformer(each.architecture), BASELINE) for each in finalists[:1]]
        for seed in self.seeds:
            for source, architecture, operator in entrants:
                if (architecture.hash, seed) not in started:
                    yield source, architecture, operator, seed

    @cached_property
    def chosen(self) -> list[tuple[int, Architecture]]:
        """(trial, architecture) of the finalists: the best of arm `main` that trained longest, without baselines."""
        every = self.store.best(
            self.study.id, self.objective.name, None, states=TRAINED, purposes=("search",), longest=True
        )
        ranked = [each for each in every if each.arm == MAIN]
        given = {architecture.hash for architecture in factory.baselines(self.config)}
        longest = ranked[0].steps if ranked else 0
        entrants = [each for each in ranked if each.steps == longest and each.architecture_hash not in given]
        return [(each.number, self._of(each)) for each in entrants[: self.config.finals.top]]

    def _of(self, trial: Trial) -> Architecture:
        return Architecture.parse(self.store.trial(self.study.id, trial.number).architecture)

    def _transformer(self, architecture: Architecture) -> Architecture:
        return matched("transformer", architecture, length=self._length).architecture

    @cached_property
    def _length(self) -> int:
        return factory.shape(self.config).length

    def _trials(self) -> list[Trial]:
        return [trial for trial in self.store.trials(self.study.id, purposes=("final",)) if trial.seed in self.seeds]

    def _finalists(self, trials: list[Trial]) -> list[Finalist]:
        """The finalists with a result: those with most seeds first, then the best mean on validation data first."""
        source = {architecture.hash: number for number, architecture in self.chosen}
        entered = set(source) | {trial.architecture_hash for trial in trials if trial.operator == FINALIST}
        found = [self._entrant(hash, trials, source) for hash in sorted(entered)]
        return sorted(
            (each for each in found if each is not None),
            key=lambda each: (-len(each.validation), self.objective.minimised(fmean(each.validation))),
        )

    def _entrant(self, hash: str, trials: list[Trial], source: Mapping[str, int]) -> Finalist | None:
        """The results of an architecture on the seeds that finished; None if there are none."""
        own = [trial for trial in trials if trial.architecture_hash == hash and trial.state is TrialState.COMPLETE]
        if not own:
            return None
        own.sort(key=lambda trial: trial.seed)
        return Finalist(
            number=source.get(hash, own[0].parents[0]),
            architecture=Architecture.parse(own[0].architecture),
            validation=tuple(trial.values[self.objective.name] for trial in own),
            test=tuple(self._on_test_data(trial) for trial in own),
            trials=tuple(trial.number for trial in own),
        )

    def _on_test_data(self, trial: Trial) -> float:
        """The objective on test data; on validation data if the task has no test data."""
        measured = metrics.lookup(
            self.store.metrics(self.study.id, trial.number, 0), metrics.on_test(self.objective.name)
        )
        return trial.values[self.objective.name] if measured is None else measured

    def report(self) -> Report | None:
        """The result of the finals; None if no finalist could be trained."""
        trials = self._trials()
        finalists = self._finalists(trials)
        if not finalists:
            return None
        winner = finalists[0]
        transformer = self._transformer(winner.architecture)
        won = winner.architecture == transformer
        baseline = None if won else self._entrant(transformer.hash, trials, {transformer.hash: winner.number})
        judged = None
        if baseline is not None:
            signed = [[self.objective.minimised(value) for value in each.test] for each in (winner, baseline)]
            judged = compare(*signed)
        return Report(self.objective.name, tuple(finalists), baseline, judged, won)
