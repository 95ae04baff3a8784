"""The finals: the best architectures and a Transformer of the winner's size, re-trained with several seeds, and a verdict.

Ranks at a small budget flip at a larger one, and the best of many noisy scores is partly luck. So finalists are trained
again, longer, with fresh seeds; the winner is chosen on validation data and judged against the Transformer on test data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from nas import assembly
from nas.config import SearchConfig
from nas.objectives.contract import Objective
from nas.store import RankedTrial, Store, Study, Trial, TrialAdded, TrialState, Unit
from nas.verdict import Verdict, compare
from searchspace.architecture import Architecture
from searchspace.matching import transformer_like

FINALIST, BASELINE = "finalist", "final baseline"
ENDED = (TrialState.COMPLETE, TrialState.FAILED)
TRAINED = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.STOPPED)  # stopped at a rung, a trial has its values too


@dataclass(frozen=True)
class Finalist:
    """One architecture of the finals: the trial it came from, and what its seeds gave."""

    number: int  # the trial of the search; for the baseline that of the winner it is matched to
    architecture: Architecture
    validation: tuple[float, ...]  # the first objective, a seed each
    test: tuple[float, ...]  # the same on test data, where the task has such; else `validation`
    trials: tuple[int, ...]


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
        return self.finalists[0]


class Finals:
    """What remains to be trained in the finals of a study, and what came of it."""

    def __init__(self, config: SearchConfig, store: Store, study: Study, objectives: Sequence[Objective]):
        self.config, self.store, self.study = config, store, study
        self.objective = objectives[0]

    def next_unit(self, owner: str, seconds: float) -> Unit | None:
        """A leased unit of the finals that nobody has begun, or None."""
        for source, architecture, operator, seed in self._planned():
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
        return None

    def _planned(self) -> Iterator[tuple[int, Architecture, str, int]]:
        """(source trial, architecture, operator, seed) of what is missing; the baseline once the winner is known."""
        trials = self._trials()
        have = {(trial.architecture_hash, trial.seed) for trial in trials}
        entrants = [(source.number, self._of(source), FINALIST) for source in self.chosen()]
        finished = [trial for trial in trials if trial.operator == FINALIST and trial.state in ENDED]
        if entrants and len(finished) >= len(entrants) * self.config.finals.seeds:
            finalists = self.finalists()
            if finalists:
                winner = finalists[0]
                entrants.append((winner.number, self._transformer(winner.architecture), BASELINE))
        for seed in self.seeds():
            for source, architecture, operator in entrants:
                if (architecture.hash, seed) not in have:
                    yield source, architecture, operator, seed

    def seeds(self) -> range:
        """Fresh ones: the search's own seed is not among them."""
        return range(self.study.seed + 1, self.study.seed + 1 + self.config.finals.seeds)

    def chosen(self) -> list[RankedTrial]:
        """The trials whose architectures enter the finals: the best at the highest rung, the baselines aside."""
        ranked = self.store.best(self.study.id, self.objective.name, None, states=TRAINED, purposes=("search",))
        rung = max((trial.rung for trial in ranked), default=0)
        entrants = [trial for trial in ranked if trial.rung == rung and trial.number not in self._baselines()]
        return entrants[: self.config.finals.top]

    def _baselines(self) -> set[int]:
        """The trials that the user brought along, which come first."""
        first = self.store.trials(self.study.id, purposes=("search",), limit=len(self.config.baselines))
        return {trial.number for trial in first if trial.operator == "baseline"}

    def _of(self, trial: RankedTrial) -> Architecture:
        return Architecture.parse(self.store.trial(self.study.id, trial.number).architecture)

    def _transformer(self, architecture: Architecture) -> Architecture:
        return transformer_like(architecture, assembly.shape(self.config).length)

    def _trials(self) -> list[Trial]:
        return self.store.trials(self.study.id, purposes=("final",))

    def finalists(self) -> list[Finalist]:
        """The finalists that finished, best mean on validation data first."""
        found = self._gather(FINALIST)
        return sorted(found, key=lambda finalist: self.objective.minimised(fmean(finalist.validation)))

    def _gather(self, operator: str) -> list[Finalist]:
        groups: dict[str, list[Trial]] = {}
        for trial in self._trials():
            if trial.operator == operator and trial.state == "complete":
                groups.setdefault(trial.architecture_hash, []).append(trial)
        return [self._finalist(sorted(group, key=lambda trial: trial.seed)) for group in groups.values()]

    def _finalist(self, trials: list[Trial]) -> Finalist:
        return Finalist(
            number=trials[0].parents[0],
            architecture=Architecture.parse(trials[0].architecture),
            validation=tuple(trial.values[self.objective.name] for trial in trials),
            test=tuple(self._on_test_data(trial) for trial in trials),
            trials=tuple(trial.number for trial in trials),
        )

    def _on_test_data(self, trial: Trial) -> float:
        """The objective on test data, or where the task has none on validation data."""
        measured = self.store.metrics(self.study.id, trial.number, 0).get(f"test_{self.objective.name}")
        return trial.values[self.objective.name] if measured is None else measured

    def report(self) -> Report | None:
        """What the finals show; None when no finalist could be trained."""
        finalists = self.finalists()
        if not finalists:
            return None
        transformer = self._transformer(finalists[0].architecture)
        baseline = next((f for f in self._gather(BASELINE) if f.architecture == transformer), None)
        judged = None
        if baseline is not None:
            signed = [[self.objective.minimised(value) for value in each.test] for each in (finalists[0], baseline)]
            judged = compare(*signed)
        won = finalists[0].architecture == transformer
        return Report(self.objective.name, tuple(finalists), baseline, judged, won)
