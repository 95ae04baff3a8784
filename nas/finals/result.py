"""How the finals ended: what each entrant reached at each length, and the comparison with the best baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from nas import metrics
from nas.finals.entrants import Entrant
from nas.finals.finals import Finals
from nas.finals.interval import Runs, Verdict, compare, paired
from nas.finals.lengths import Lengths, across_lengths
from nas.finals.plan import Options
from nas.finals.runs import Recorded, Run
from nas.finals.savings import Reach, reach
from nas.store import Trial
from searchspace.model.architecture import Architecture


@dataclass(frozen=True)
class Result:
    """One entrant. validation, test: the first objective by length, one value for each seed that ended well; test is
    `validation` where the task has no test data.

    seeds, trials: of these values, by length. failed: how many of its runs failed, by length. options: what tuning
    chose. at_the_edge: the names of options whose best value is the largest or smallest of at least three.
    """

    entrant: Entrant
    options: Options
    validation: dict[int, tuple[float, ...]]
    test: dict[int, tuple[float, ...]]
    seeds: dict[int, tuple[int, ...]]
    trials: dict[int, tuple[int, ...]]
    failed: dict[int, int]
    at_the_edge: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The trial of the search; for a baseline that of the winner."""
        return self.entrant.trial

    @property
    def architecture(self) -> Architecture:
        """What was trained."""
        return self.entrant.architecture


@dataclass(frozen=True)
class Report:
    """How the finals ended. Every length has its own baseline: the best one there on validation data.

    of_controls: the comparison with the best of each control arm, by name; None if it is the winner's architecture.
    empty_arms: control arms without a finished trial. out: entrants that have no result, because all their runs failed.
    missing: baselines that could not be made, one sentence each. tuning_share: of all training steps of the finals.
    """

    objective: str
    lengths: tuple[int, ...]
    finalists: tuple[Result, ...]  # best first, at the longest length
    controls: tuple[Result, ...]
    baselines: tuple[Result, ...]  # best first
    comparison: Lengths | None  # of the winner with the best baseline; None without baselines
    against: dict[int, str]  # the name of the best baseline, by length
    of_controls: dict[str, Lengths | None] = field(default_factory=dict)
    empty_arms: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    tuning_share: float = 0.0
    reach: Reach | None = None  # of what the best baseline has at the longest length; None with one length

    @property
    def winner(self) -> Result:
        """The best finalist on validation data."""
        return self.finalists[0]

    @property
    def baseline(self) -> Result | None:
        """The best baseline at the longest length; None if there is none."""
        name = self.against.get(self.lengths[-1])
        return next((each for each in self.baselines if each.entrant.name == name), None)

    @property
    def verdict(self) -> Verdict | None:
        """The comparison at the longest length."""
        return self.comparison.longest if self.comparison else None


def report(finals: Finals) -> Report | None:
    """The result of the finals so far; None if no finalist has a result at the longest length."""
    recorded = finals.recorded()
    reading = _Reading(finals, recorded)
    finalists = [reading.result([each]) for each in finals.ranked(recorded, finals.finalists)]
    if not finalists:
        return None
    winner = finalists[0] = reading.result([finalists[0].entrant], is_winner=True)
    groups = finals.groups(winner.entrant)
    tried = [reading.result(group) for group in groups if finals.chosen(recorded, group)]
    baselines = sorted((each for each in tried if each.validation[finals.plan.longest]), key=reading.rank)
    controls = [reading.result([each]) for each in finals.ranked(recorded, finals.controls)]
    against = {steps: best for steps in finals.plan.lengths if (best := reading.best(baselines, steps))}
    present = {each.entrant.group for each in (*finalists, *controls, *baselines)}
    every = [[each] for each in (*finals.finalists, *finals.controls)] + groups
    return Report(
        objective=finals.objective.name,
        lengths=finals.plan.lengths,
        finalists=tuple(finalists),
        controls=tuple(controls),
        baselines=tuple(baselines),
        comparison=reading.compared(winner, against),
        against={steps: best.entrant.name for steps, best in against.items()},
        of_controls={
            each.entrant.name: None
            if each.architecture == winner.architecture
            else reading.compared(winner, dict.fromkeys(finals.plan.lengths, each))
            for each in controls
        },
        empty_arms=finals.empty_arms,
        missing=finals.baselines(winner.entrant).missing,
        out=tuple(group[0].group for group in every if group[0].group not in present),
        tuning_share=reading.tuning_share(every),
        reach=reading.reach(winner, against.get(finals.plan.longest)),
    )


class _Reading:
    """Reads the trials of the finals."""

    def __init__(self, finals: Finals, recorded: Recorded):
        self.finals, self.recorded = finals, recorded
        self.store, self.study, self.objective = finals.store, finals.study, finals.objective

    def result(self, group: Sequence[Entrant], *, is_winner: bool = False) -> Result:
        """The entrant of a group that was trained to the end; of the winner also the runs that only it has."""
        chosen = self.finals.chosen(self.recorded, group)
        assert chosen is not None  # a group has no result if all its tries failed
        entrant, options = chosen
        name, lengths = self.objective.name, self.finals.plan.lengths
        runs = [each for each in self.finals.runs(self.recorded, group) if each.stage == "final"]
        if is_winner:
            runs += self.finals.runs_alone(self.recorded, entrant)
            lengths = tuple(sorted({*lengths, *self.finals.plan.winner_lengths}))
        ended = {
            steps: [trial for run in runs if run.steps == steps and (trial := self.recorded.complete(run))]
            for steps in lengths
        }
        return Result(
            entrant=entrant,
            options=options,
            validation={steps: tuple(each.values[name] for each in some) for steps, some in ended.items()},
            test={steps: tuple(map(self._on_test_data, some)) for steps, some in ended.items()},
            seeds={steps: tuple(each.seed for each in some) for steps, some in ended.items()},
            trials={steps: tuple(each.number for each in some) for steps, some in ended.items()},
            failed={steps: len(self.recorded.failed(run for run in runs if run.steps == steps)) for steps in lengths},
            at_the_edge=self._at_the_edge(options),
        )

    def _at_the_edge(self, options: Options) -> tuple[str, ...]:
        tries = self.finals.plan.tries
        numbers = {name: [each[name] for each in tries] for name in options if isinstance(options[name], int | float)}
        return tuple(
            name
            for name, values in numbers.items()
            if len(set(values)) > 2 and options[name] in (min(values), max(values))
        )

    def _on_test_data(self, trial: Trial) -> float:
        """The objective on test data; on validation data if the task has no test data."""
        measured = self.store.metrics(self.study.id, trial.number, 0).get(metrics.on_test(self.objective.name))
        return trial.values[self.objective.name] if measured is None else measured

    def rank(self, result: Result) -> tuple[int, float]:
        """The mean on validation data at the longest length; less is better."""
        return self._rank(result, self.finals.plan.longest)

    def best(self, results: Sequence[Result], steps: int) -> Result | None:
        """The best on validation data at a length."""
        some = [each for each in results if each.validation[steps]]
        return min(some, key=lambda each: self._rank(each, steps), default=None)

    def _rank(self, result: Result, steps: int) -> tuple[int, float]:
        """A baseline with a single run that ended well comes behind those with several: it may be a lucky one, and an
        interval needs two."""
        values = result.validation[steps]
        return -min(len(values), 2), fmean(map(self.objective.minimised, values))

    def compared(self, candidate: Result, others: Mapping[int, Result]) -> Lengths | None:
        """The winner against another entrant at each length, on test data; None if there is none."""
        if not others:
            return None
        runs = {steps: self._pair((candidate, steps), (other, steps)) for steps, other in others.items()}
        return across_lengths(runs, chosen_from=len(self.finals.finalists))

    def reach(self, winner: Result, baseline: Result | None) -> Reach | None:
        """When the winner reaches the longest runs of the best baseline; None without it or with one length."""
        lengths = [steps for steps, values in winner.test.items() if values]
        if baseline is None or len(lengths) < 2:
            return None
        chosen_from, longest = len(self.finals.finalists), self.finals.plan.longest
        pairs = {each: self._pair((winner, each), (baseline, longest)) for each in lengths}
        return reach({each: compare(*pair, chosen_from=chosen_from) for each, pair in pairs.items()})

    def _pair(self, candidate: tuple[Result, int], baseline: tuple[Result, int]) -> tuple[Runs, Runs]:
        """The runs of both, each a result and its length. Documents that are not the same in all runs are left out: a
        task that draws other held-out data for every seed has none to pair."""
        pair = self._runs(*candidate), self._runs(*baseline)
        try:
            paired(*pair)
        except ValueError:
            return replace(pair[0], documents=None), replace(pair[1], documents=None)
        return pair

    def _runs(self, result: Result, steps: int) -> Runs:
        trials = result.trials[steps]
        by_document = self.store.documents(self.study.id, trials, "test")
        known = [by_document[each] for each in trials if each in by_document]
        usable = len(known) == len(trials) and all(each.metric == self.objective.name for each in known)
        return Runs(
            seeds=result.seeds[steps],
            values=tuple(map(self.objective.minimised, result.test[steps])),
            documents=tuple(known) if usable and known else None,
            failed=result.failed[steps],
        )

    def tuning_share(self, groups: Sequence[Sequence[Entrant]]) -> float:
        """The training steps that went into tuning, as a share of all steps of the finals."""
        runs: list[Run] = [run for group in groups for run in self.finals.runs(self.recorded, group)]
        ended = {run.key: run for run in runs if self.recorded.has_started(run)}.values()
        total = sum(run.steps for run in ended)
        return sum(run.steps for run in ended if run.stage == "tuning") / total if total else 0.0
