"""Judges the finals of a study: what each entrant reached, the comparison with the best baseline, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from nas import metrics
from nas.config.parts import parts
from nas.finals import savings, speed
from nas.finals.entrants import Entrant
from nas.finals.finals import Finals
from nas.finals.interval import Runs, compare, paired
from nas.finals.lengths import across_lengths
from nas.finals.plan import STRONG, Options, kind
from nas.finals.sentence import sentence
from nas.finals.verdict import Comparisons, EntrantResult, Savings, Verdict
from nas.objectives.contract import Direction
from nas.report.finals import answers, verdict
from nas.report.trials import at_trial_depth
from nas.store import Trial
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost


def keep(finals: Finals, extends: Mapping[str, Any] | None = None) -> Verdict | None:
    """Judge the finals so far and store the verdict; None if no finalist has a result at the longest length.

    extends: the finals of the search file, if these extend them. The stored verdict stays if no run has ended since it
    was made, and it is of the same finals or, for the search file, extends them. Speeds are measured for new entrants.
    """
    store, study = finals.store, finals.study
    own, sequence = finals.config.finals.model_dump(mode="json"), store.mark(study.id).sequence
    before = verdict(store, study)
    if before is not None and before.sequence == sequence:
        given = {"finals": before.finals, "extends": before.extends}
        if answers(given, own) if extends is None else before.finals == own:
            return before
    known = {each.hash: each.tokens_per_second for each in before.entrants} if before is not None else {}
    found = _Judge(finals, known).verdict()
    if found is None:
        return None
    kept = found.model_copy(update={"finals": own, "extends": extends and dict(extends), "sequence": sequence})
    store.add_verdict(study.id, kept.document())
    return verdict(store, study)


class _Judge:
    """Reads the trials of the finals. speeds: tokens per second by hash of an architecture, of an earlier verdict."""

    def __init__(self, finals: Finals, speeds: Mapping[str, float]):
        self.finals, self.recorded, self.speeds = finals, finals.recorded(), dict(speeds)
        self.store, self.study, self.objective = finals.store, finals.study, finals.objective
        self.maximised = self.objective.direction is Direction.MAXIMISE

    def verdict(self) -> Verdict | None:
        """The verdict, without what says which finals it is of; None without a winner."""
        finals, plan = self.finals, self.finals.plan
        finalists = finals.ranked(self.recorded, finals.finalists)
        if not finalists:
            return None
        groups = finals.groups(finalists[0])
        own = [self._result([each], is_winner=each is finalists[0]) for each in finalists]
        controls = [self._result([each]) for each in finals.ranked(self.recorded, finals.controls)]
        tried = [self._result(group) for group in groups if finals.chosen(self.recorded, group)]
        complete = [each for each in tried if each.validation[plan.longest]]
        baselines = sorted(complete, key=lambda each: self._rank(each, plan.longest))
        results = self._with_speeds([*own, *controls, *baselines])
        winner = results[0]
        baselines = [each for each in results if each.role == "baseline"]
        against = {steps: best for steps in plan.lengths if (best := self._best(baselines, steps))}
        by_control = {
            each.name: None if each.hash == winner.hash else self._compared(winner, dict.fromkeys(plan.lengths, each))
            for each in results
            if each.role == "control"
        }
        every = [[each] for each in (*finals.finalists, *finals.controls)] + groups
        names = {each.name for each in results}
        found = Verdict(
            finals={},
            extends=None,
            sequence=0,
            objective=self.objective.name,
            direction=str(self.objective.direction),
            seeds=len(plan.seeds),
            lengths=plan.lengths,
            tries=tuple(dict(each) for each in plan.tries),
            tuning_share=self._tuning_share(every),
            entrants=tuple(results),
            against={steps: best.name for steps, best in against.items()},
            comparison=self._compared(winner, against),
            controls=by_control,
            empty_arms=finals.empty_arms,
            out=tuple(group[0].group for group in every if not names & {each.name for each in group}),
            missing=finals.baselines(finalists[0]).missing,
            left_out=tuple(left_out(finals)),
            savings=self._savings(winner, against.get(plan.longest)),
        )
        return found.model_copy(update={"sentence": self._sentence(found)})

    def _result(self, group: Sequence[Entrant], *, is_winner: bool = False) -> EntrantResult:
        """The entrant of a group that was trained to the end; of the winner also the runs that only it has."""
        chosen = self.finals.chosen(self.recorded, group)
        assert chosen is not None  # a group has no result if all its tries failed
        entrant, options = chosen
        architecture, lengths = entrant.architecture, self.finals.plan.lengths
        runs = [each for each in self.finals.runs(self.recorded, group) if each.stage == "final"]
        if is_winner:
            runs += self.finals.runs_alone(self.recorded, entrant)
            lengths = tuple(sorted({*lengths, *self.finals.plan.winner_lengths}))
        ended = {
            steps: [trial for run in runs if run.steps == steps and (trial := self.recorded.complete(run))]
            for steps in lengths
        }
        in_runs = self._shape_in_runs(ended[self.finals.plan.longest])
        shape = in_runs
        if entrant.role != "baseline":
            shape = at_trial_depth(self.store, self.study, entrant.trial, parts(self.finals.config).shape)
        found = cost(architecture, shape)
        return EntrantResult(
            name=entrant.name,
            role=entrant.role,
            is_winner=is_winner,
            trial=entrant.trial,
            hash=architecture.hash,
            architecture=architecture.text(),
            note=entrant.note,
            options=dict(options),
            at_the_edge=self._at_the_edge(options),
            validation={n: tuple(each.values[self.objective.name] for each in some) for n, some in ended.items()},
            test={steps: tuple(map(self._on_test_data, some)) for steps, some in ended.items()},
            seeds={steps: tuple(each.seed for each in some) for steps, some in ended.items()},
            trials={steps: tuple(each.number for each in some) for steps, some in ended.items()},
            finals={steps: tuple(each.final or 0 for each in some) for steps, some in ended.items()},
            failed={steps: len(self.recorded.failed(run for run in runs if run.steps == steps)) for steps in lengths},
            parameters=found.parameters,
            flops=found.expected_flops,
            flops_in_runs=cost(architecture, in_runs).expected_flops,
            # Training computes the steps of a halting block until the last position of the batch has halted: at most
            # all.
            training_flops=found.training_flops,
            state_bytes=found.state_bytes,
            activation_bytes=found.activation_bytes,
            tokens_per_second=self.speeds.get(architecture.hash, 0.0),
        )

    def _shape_in_runs(self, longest: Sequence[Trial]) -> Shape:
        """The shape of a sequence, with halting blocks at the mean depth that the longest runs measured."""
        shape = parts(self.finals.config).shape
        depths = [shape.at_depth(self.store.metrics(self.study.id, each.number, 0)).halting_steps for each in longest]
        known = [depth for depth in depths if depth is not None]
        return replace(shape, halting_steps=fmean(known)) if known else shape

    def _at_the_edge(self, options: Options) -> tuple[str, ...]:
        """The names of options whose chosen value is the largest or smallest of at least three."""
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

    def _with_speeds(self, results: Sequence[EntrantResult]) -> list[EntrantResult]:
        """If an entrant is new, all are measured in turns, so that their speeds can be compared."""
        if {each.hash for each in results} - self.speeds.keys():
            made = [Architecture.parse(each.architecture) for each in results]
            found = zip(results, speed.in_turns(self.finals.config, made), strict=True)
            return [each.model_copy(update={"tokens_per_second": value}) for each, value in found]
        return list(results)

    def _best(self, results: Sequence[EntrantResult], steps: int) -> EntrantResult | None:
        """The best on validation data at a length."""
        some = [each for each in results if each.validation[steps]]
        return min(some, key=lambda each: self._rank(each, steps), default=None)

    def _rank(self, result: EntrantResult, steps: int) -> tuple[int, float]:
        """The mean on validation data; less is better. A baseline with a single run that ended well comes behind those
        with several: it may be a lucky one, and an interval needs two."""
        values = result.validation[steps]
        return -min(len(values), 2), fmean(map(self.objective.minimised, values))

    def _compared(self, candidate: EntrantResult, others: Mapping[int, EntrantResult]) -> Comparisons | None:
        """The winner against another entrant at each length, on test data; None if there is none."""
        if not others:
            return None
        runs = {steps: self._pair((candidate, steps), (other, steps)) for steps, other in others.items()}
        found = across_lengths(runs, chosen_from=len(self.finals.finalists))
        return found.negated() if self.maximised else found

    def _savings(self, winner: EntrantResult, baseline: EntrantResult | None) -> Savings | None:
        """How much less training the winner needs to reach the longest runs of the best baseline; None with one length
        or without a baseline."""
        lengths, longest = [steps for steps, values in winner.test.items() if values], self.finals.plan.longest
        if baseline is None or len(lengths) < 2:
            return None
        pairs = {each: self._pair((winner, each), (baseline, longest)) for each in lengths}
        chosen_from = len(self.finals.finalists)
        found = savings.savings(
            savings.reach({each: compare(*pair, chosen_from=chosen_from) for each, pair in pairs.items()}),
            shortest=min(lengths),
            longest=longest,
            flops=(winner.training_flops, baseline.training_flops),
            speeds=(winner.tokens_per_second, baseline.tokens_per_second),
            parameters=(winner.parameters, baseline.parameters),
        )
        said = savings.sentence(found, winner.name, "the best baseline", longest)
        return found.model_copy(update={"sentence": f"{said[:1].upper()}{said[1:]}"})

    def _pair(self, candidate: tuple[EntrantResult, int], baseline: tuple[EntrantResult, int]) -> tuple[Runs, Runs]:
        """The runs of both, each a result and its length. Documents that are not the same in all runs are left out: a
        task that draws other held-out data for every seed has none to pair."""
        pair = self._runs(*candidate), self._runs(*baseline)
        try:
            paired(*pair)
        except ValueError:
            return replace(pair[0], documents=None), replace(pair[1], documents=None)
        return pair

    def _runs(self, result: EntrantResult, steps: int) -> Runs:
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

    def _tuning_share(self, groups: Sequence[Sequence[Entrant]]) -> float:
        """The training steps that went into tuning, as a share of all steps of the finals."""
        runs = [run for group in groups for run in self.finals.runs(self.recorded, group)]
        ended = {run.key: run for run in runs if self.recorded.has_started(run)}.values()
        total = sum(run.steps for run in ended)
        return sum(run.steps for run in ended if run.stage == "tuning") / total if total else 0.0

    def _sentence(self, found: Verdict) -> str:
        """The verdict in words: against the best baseline, then against each control."""
        flops = {each.name: each.training_flops for each in found.entrants}
        winner = found.winner.name
        about: dict[str, Any] = {
            "metric": f"{found.objective} on test data",
            "candidate": winner,
            "maximised": self.maximised,
        }
        if found.comparison is None or found.baseline is None:
            said = ["No baseline has a result, so there is nothing to compare with."]
        else:
            best = f"the best baseline ({' / '.join(dict.fromkeys(found.against.values()))})"
            compute = flops[winner] / flops[found.baseline.name]
            said = [sentence(found.comparison, baseline=best, compute=compute, **about)]
        if found.savings:
            said.append(found.savings.sentence)
        for name, compared in found.controls.items():
            if compared is None:
                said.append(f"The {name} is the same architecture as {winner}.")
            else:
                said.append(sentence(compared, baseline=f"the {name}", compute=flops[winner] / flops[name], **about))
        said += [f"No trial of arm {arm} has finished, so there is no control." for arm in found.empty_arms]
        return "Verdict: " + " ".join(said)


def left_out(finals: Finals) -> Iterator[str]:
    """What the defaults of the finals have and these do not, one phrase each."""
    plan = finals.plan
    if len(plan.lengths) == 1:
        yield "longer training"
    if len(plan.seeds) < 3:
        yield "a third seed"
    if len(plan.tries) == 1:
        yield "tuning of the learning rate"
    missing = [name for name in STRONG[kind(finals.config)] if name not in plan.baselines]
    if missing:
        yield f"the baselines {', '.join(missing)}" if len(missing) > 1 else f"the baseline {missing[0]}"
    if "flops" not in plan.match:
        yield "baselines with the same FLOPs"
    if "parameters" not in plan.match:
        yield "baselines with the same parameters"
    if len(plan.shapes) == 1:
        yield "baselines in a second shape"
    if finals.config.task.options.get("evaluation") is not None:
        yield "a part of the held-out data"
    if not finals.config.arms:
        yield "a control arm with random search"
