"""The finals: who enters, what is tuned and trained, what comes out, and that no run is done twice."""

import dataclasses
from collections import Counter

import pytest

from nas.engine.replay import replay
from nas.errors import NasError, UsageError
from nas.finals import entrants
from nas.numbers import FIRST_FINAL
from nas.report import summary
from nas.store import TrialState
from nas.work import Failure, FailureKind, Outcome
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
FINALS = """{top: 2, seeds: 3, steps: [10, 20], baselines: [transformer, transformer_modern, primer],
  match: [parameters, flops], shapes: [deep, wide], tune: {learning_rate: [0.0015, 0.003, 0.006]}}"""
SMALL = "{top: 2, seeds: 3, steps: 20, baselines: [transformer], match: parameters, shapes: usual, tune: {}}"


def finals_of(result):
    trials = result.store.trials(result.study.id, purposes=("final",))
    result.store.close()
    return trials


def broken(work, kind=FailureKind.NOT_FINITE):
    return Outcome(trial=work.trial, rung=0, seconds=1.0, failure=Failure(kind, "diverged"))


def best_of(result):
    found = result.store.trial(result.study.id, result.store.best(result.study.id)[0].number)
    result.store.close()
    return found


def test_every_entrant_is_tuned_and_trained_with_every_seed_and_length(describe, search, documented):
    result = search(describe(finals=FINALS), documented)
    found, trials = result.verdict, finals_of(result)
    names = [each.name for each in found.baselines]
    assert {name.rpartition(", ")[0] for name in names} == {
        f"{family}, same {size}"
        for family in ("transformer", "transformer_modern", "primer")
        for size in ("parameters", "FLOPs")
        if any(name.startswith(f"{family}, same {size}") for name in names)
    }
    for each in (*found.finalists, *found.baselines):
        assert dict(each.options) == {"learning_rate": 0.003} and not each.at_the_edge
        assert {steps: len(values) for steps, values in each.test.items()} == {10: 3, 20: 3}
    tuning = [each for each in trials if each.operator == "tuning"]
    assert {each.steps for each in tuning} == {10} and len({each.seed for each in tuning}) == 1
    assert {each.recipe["learning_rate"] for each in tuning} == {0.0015, 0.003, 0.006}
    assert not {each.seed for each in tuning} & {each.seed for each in trials if each.operator != "tuning"}
    assert 0 not in {each.seed for each in trials}
    assert found.comparison.longest.runs == (3, 3) and set(found.comparison.lengths) == {10, 20}
    assert 0 < found.tuning_share < 0.5


def test_the_winner_alone_is_trained_at_further_lengths(describe, search, documented):
    finals = "{top: 2, seeds: 3, steps: [10, 20], winner_steps: [5, 10, 15], tune: {}, shapes: usual}"
    result = search(describe(finals=finals), documented)
    found = result.verdict
    alone = [each for each in finals_of(result) if each.steps in (5, 15)]
    assert {each.architecture_hash for each in alone} == {found.winner.hash}
    assert {steps: len(values) for steps, values in found.winner.test.items()} == {5: 3, 10: 3, 15: 3, 20: 3}
    assert set(found.finalists[1].test) == set(found.comparison.lengths) == set(found.against) == {10, 20}
    assert "test, 5 steps" in found.rows()[0]


def test_runs_that_choose_options_are_not_evaluated_on_test_data(describe, search, documented):
    works = []

    def watched(work, progress=None):
        works.append(work)
        return documented(work)

    trials = finals_of(search(describe(finals=FINALS), watched))
    tuning = {each.number for each in trials if each.operator == "tuning"}
    assert tuning and {each.trial for each in works if not each.tested} == tuning


def test_the_verdict_is_against_the_best_baseline_on_validation_data(describe, search, documented):
    result = search(describe(finals=FINALS), documented)
    finals_of(result)
    found = result.verdict
    means = {each.name: sum(each.validation[20]) for each in found.baselines}
    assert found.against[20] == min(means, key=means.get) == found.baseline.name
    difference = sum(found.winner.test[20]) / 3 - sum(found.baseline.test[20]) / 3
    assert found.comparison.longest.difference == pytest.approx(difference)


def test_a_learning_rate_at_the_edge_of_what_was_tried_is_named(describe, search, documented):
    finals = FINALS.replace("[0.0015, 0.003, 0.006]", "[0.003, 0.006, 0.009]")
    result = search(describe(finals=finals), documented)
    finals_of(result)
    assert result.verdict.winner.at_the_edge == ("learning_rate",)
    assert any(f"learning_rate 0.003 of trial {result.verdict.winner.trial}" in line for line in result.verdict.notes())


def test_baselines_have_the_size_or_the_flops_of_the_winner(describe, search):
    finals = (
        "{top: 1, seeds: 1, steps: 20, baselines: transformer, match: [parameters, flops], shapes: usual, tune: {}}"
    )
    result = search(describe(finals=finals, objectives="[loss]"))
    finals_of(result)
    winner = cost(Architecture.parse(result.verdict.winner.architecture), length=128)
    for each in result.verdict.baselines:
        own = cost(Architecture.parse(each.architecture), length=128)
        wanted = "parameters" if "parameters" in each.name else "expected_training_flops"
        error = abs(getattr(own, wanted) / getattr(winner, wanted) - 1)
        assert error < 0.1 or each.note, each.name


def test_the_better_shape_of_a_baseline_is_trained_to_the_end(describe, search, documented):
    result = search(
        describe(
            finals="{top: 1, seeds: 2, steps: 20, baselines: transformer, match: parameters, shapes: [deep, wide]}"
        ),
        documented,
    )
    trials = finals_of(result)
    (baseline,) = result.verdict.baselines
    tried = {each.architecture_hash for each in trials if each.operator == "tuning"} - {trials[0].architecture_hash}
    assert baseline.hash in tried
    assert Counter(each.operator for each in trials)["baseline"] == 2


def test_the_best_of_each_control_arm_enters_the_same_finals(describe, search, table):
    arms = "{trials: 12}\narms: {random: {strategy: random, share: 0.5}}"
    config = describe(finals=SMALL, budget=arms)
    result = search(config, table)
    finals_of(result)
    (control,) = (each for each in result.verdict.entrants if each.role == "control")
    assert control.name == "best of arm random" and len(control.test[20]) == 3
    if control.hash != result.verdict.winner.hash:
        assert set(result.verdict.controls["best of arm random"].lengths) == {20}


def test_a_baseline_of_the_search_can_win_the_finals(describe, search, table):
    def run(work, progress=None):
        outcome = table(work)
        better = {name: value - 5 for name, value in outcome.metrics.items()}
        return Outcome(trial=work.trial, rung=0, seconds=1.0, metrics=better) if work.trial == 0 else outcome

    result = search(describe(finals=SMALL, baselines="[transformer_decoder:tiny]"), run)
    finals_of(result)
    assert 0 in {each.trial for each in result.verdict.finalists}


class Breakdown(NasError):
    pass


def test_finals_go_on_in_the_middle_and_are_not_repeated(describe, search, documented):
    config = describe(finals=FINALS)
    ran = []

    def run(work, progress=None):
        if len(ran) in (14, 30, 52):  # once each; the finals begin after 12 units
            ran.append(None)
            raise Breakdown("gone")
        ran.append((work.architecture, work.seed, work.steps, str(work.recipe)))
        return documented(work)

    for _ in range(3):
        with pytest.raises(Breakdown):
            search(config, run)
    first = search(config, run)
    first.store.close()
    done = [each for each in ran if each]
    assert len(done) == len(set(done))
    count = len(ran)
    again = search(config, run)
    again.store.close()
    assert len(ran) == count and again.verdict == first.verdict


def test_a_finalist_that_fails_does_not_stand_in_the_way(describe, search, table):
    best = best_of(search(describe()))
    result = search(
        describe(finals=SMALL),
        lambda work, progress=None: broken(work) if work.architecture == best.architecture else table(work),
    )
    trials = finals_of(result)
    assert [each.trial for each in result.verdict.finalists] == [result.verdict.winner.trial] != [best.number]
    assert Counter(trial.state for trial in trials) == {TrialState.FAILED: 3, TrialState.COMPLETE: 6}
    assert result.verdict.comparison.longest.runs == (3, 3)
    assert f"trial {best.number}: every run failed." in result.verdict.notes()


def test_a_finalist_that_failed_on_one_seed_comes_behind_those_that_never_did(describe, search, table):
    best = best_of(search(describe()))

    def run(work, progress=None):
        if work.architecture != best.architecture:
            return table(work)
        if work.seed % 2:
            return broken(work)
        return Outcome(trial=work.trial, rung=0, seconds=1.0, metrics={"loss": 0.0, "test/loss": 0.0})

    result = search(describe(finals=SMALL), run)
    result.store.close()
    counts = [len(each.test[20]) for each in result.verdict.finalists]
    assert counts[0] == 3 and counts[1] in (1, 2)
    assert result.verdict.finalists[1].failed[20] == 3 - counts[1]


def test_if_every_finalist_fails_there_is_no_report_and_no_second_attempt(describe, search, table):
    result = search(describe(finals=SMALL), lambda work, progress=None: broken(work) if work.seed else table(work))
    assert result.verdict is None
    assert "there is no verdict; failed runs: 6 not finite" in summary.to_text(result.store, result.study, None, str)
    assert len(finals_of(result)) == 6


def test_a_search_goes_on_after_finals_and_counts_its_trials_below_them(describe, search):
    finals_of(search(describe(finals=SMALL, budget="{trials: 3}")))
    result = search(describe(finals=SMALL, budget="{trials: 5}"))
    searched = [each.number for each in result.store.trials(result.study.id, purposes=("search",))]
    assert replay(result.store, result.study).same
    finals = finals_of(result)
    assert searched == [0, 1, 2, 3, 4]
    assert [each.number for each in finals] == [FIRST_FINAL + place for place in range(len(finals))]


def test_a_larger_budget_uses_the_finals_that_are_there(describe, search, table):
    ran = Counter()

    def run(work, progress=None):
        ran[work.architecture, work.seed] += 1
        return table(work)

    small = search(describe(finals=SMALL), run)
    small.store.close()
    large = search(describe(finals=SMALL, budget="{trials: 60}"), run)
    entered = {each.trial for each in large.verdict.finalists}
    large.store.close()
    assert set(ran.values()) == {1}
    assert {each.trial for each in small.verdict.finalists} <= entered  # trained as long, so it may still win


def test_finals_of_another_length_are_not_mixed_in(describe, search):
    search(describe(finals=SMALL)).store.close()
    result = search(describe(finals=SMALL.replace("steps: 20", "steps: 40")))
    finals_of(result)
    for each in (*result.verdict.finalists, *result.verdict.baselines):
        assert {steps: len(values) for steps, values in each.test.items()} == {40: 3}


def test_scores_of_documents_are_kept_with_the_finals_alone(describe, search, documented):
    result = search(describe(finals=SMALL), documented)
    store, study = result.store, result.study
    searched = [each.number for each in store.trials(study.id, purposes=("search",))]
    winner = result.verdict.winner
    kept = store.documents(study.id, winner.trials[20], "test")
    assert set(kept) == set(winner.trials[20])
    for number, value in zip(winner.trials[20], winner.test[20]):
        assert kept[number].value == pytest.approx(value)
    assert not store.documents(study.id, searched, "test")
    store.close()


def test_documents_that_differ_between_runs_are_not_paired(describe, search, documented):
    def run(work, progress=None):
        outcome = documented(work)
        renamed = {
            split: dataclasses.replace(each, names=tuple(f"{work.seed} {name}" for name in each.names))
            for split, each in outcome.documents.items()
        }
        return dataclasses.replace(outcome, documents=renamed)

    result = search(describe(finals=SMALL, budget="{trials: 3}"), run)
    finals_of(result)
    assert result.verdict.comparison.longest.runs == (3, 3) and result.verdict.comparison.longest.documents == 0


def test_the_default_lengths_are_the_last_rung_and_three_times_that(describe, search):
    task, finals = "{language_model: {evaluation: 1024}}", "{top: 1, seeds: 1, baselines: transformer}"
    result = search(describe(scheduler=HALVING, task=task, finals=finals, budget="{trials: 90}"))
    finals_of(result)
    assert result.verdict.lengths == (8, 24)


def test_a_baseline_may_be_a_file_and_is_kept_with_the_study(describe, search, tmp_path):
    text = "{kind: decoder, width: 32, vocabulary: 256, body: attention}"
    (tmp_path / "mine.yaml").write_text(text)
    result = search(describe(finals=SMALL.replace("[transformer]", f"{tmp_path}/mine.yaml")))
    kept = result.study.config["finals"]["baselines"]
    finals_of(result)
    assert Architecture.parse(kept[0]["text"]).root.name == "decoder"
    assert [each.name.startswith(str(tmp_path / "mine.yaml")) for each in result.verdict.baselines] == [True]


@pytest.mark.parametrize(
    ("finals", "message"),
    [
        ("{top: 1, baselines: [transfromer]}", "transformer"),
        ("{top: 1, match: [parameter]}", "parameters"),
        ("{top: 1, tune: {learning_rat: [1e-3]}}", "learning_rate"),
        ("{top: 1, tune: {learning_rate: []}}", "at least 1"),
        ("{top: 1, steps: [0]}", "greater than or equal to 1"),
        ("{top: 1, match: latency}", "the process of the search must measure it"),
        ("{top: 1, steps: [10, 20], winner_steps: [30]}", "below the longest length, 20 steps, but has 30"),
    ],
)
def test_mistakes_are_named_with_what_is_valid(describe, finals, message):
    with pytest.raises(UsageError, match=message):
        describe(finals=finals)


def test_a_metric_that_is_better_when_it_is_higher_is_compared_and_told_so(describe, search, table):
    def run(work, progress=None):
        outcome = table(work)
        return dataclasses.replace(outcome, metrics={name: -value for name, value in outcome.metrics.items()})

    objectives = "[{metric: test/loss, direction: maximize}]"  # the task says nothing about this name
    result = search(describe(finals=SMALL, objectives=objectives), run)
    finals_of(result)
    found = result.verdict
    means = [sum(each.validation[20]) for each in found.finalists]
    assert means == sorted(means, reverse=True)
    difference = (sum(found.winner.test[20]) - sum(found.baseline.test[20])) / 3
    assert f"{difference:+.3g}" in found.sentence and "higher is better" in found.sentence
    longest = found.comparison.longest
    assert longest.difference == pytest.approx(difference) and longest.low < difference < longest.high


@pytest.mark.usefixtures("measured_once")
def test_latency_is_matched_as_the_objective_of_the_search_measures_it(describe):
    here = "{latency: {phase: decode, length: 4, threads: 1, method: measured}}"
    there = "{latency: {on: {resources: {quiet: 1}}, name: board_ms}}"
    measure = entrants._latency(describe(objectives=f"[loss, {there}, {here}]"))
    assert measure(Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 8\nbody: gru")) > 0
    assert entrants._latency(describe(objectives=f"[loss, {there}]")) is None


def test_a_baseline_matched_in_latency_stays_what_it_was_when_its_first_run_started(describe, search, monkeypatch):
    finals = "{top: 1, seeds: 1, steps: 20, baselines: transformer, match: parameters, shapes: usual, tune: {}}"
    config = describe(finals=finals)
    config = config.model_copy(update={"finals": config.finals.model_copy(update={"match": ("latency",)})})
    speed = iter(range(1, 10_000))  # every measurement differs
    monkeypatch.setattr(entrants, "_latency", lambda config: lambda architecture: float(next(speed)))
    first = search(config)
    first.store.close()
    again = search(config)
    finals_of(again)
    (one,), (other,) = first.verdict.baselines, again.verdict.baselines
    assert one.name == "transformer, same latency, usual"
    assert one.architecture == other.architecture and one.trials == other.trials
    assert one.note == other.note != ""
