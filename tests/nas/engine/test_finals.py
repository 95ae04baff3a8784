"""The finals: who enters, what is trained again, what comes out, and that none of it is done twice."""

from collections import Counter

import pytest

from nas.config import factory
from nas.errors import NasError
from nas.store import TrialState
from nas.work import Failure, FailureKind, Outcome
from searchspace.matching import matched

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
FINALS = "{top: 2, seeds: 3, steps: 20}"


def finals_of(result):
    trials = result.store.trials(result.study.id, purposes=("final",))
    result.store.close()
    return trials


def test_the_best_of_the_highest_rung_are_trained_again_and_then_the_transformer_of_the_winner(describe, search):
    result = search(describe(scheduler=HALVING, finals=FINALS, baselines="[transformer_decoder:small]"))
    ranked = result.store.best(result.study.id, states=("complete",), purposes=("search",), limit=None)
    candidates = [each for each in ranked if each.rung == 2 and each.number != 0]
    report, trials = result.report, finals_of(result)
    assert {entrant.number for entrant in report.finalists} == {each.number for each in candidates[:2]}
    assert Counter(trial.operator for trial in trials) == {"finalist": 6, "final baseline": 3}
    assert {trial.operator for trial in trials[:6]} == {"finalist"}  # the baseline follows from the winner
    winner = report.winner
    length = factory.shape(result.config).length
    assert report.baseline.architecture == matched("transformer", winner.architecture, length=length).architecture
    assert sum(winner.validation) <= sum(report.finalists[1].validation)
    assert 0 not in {trial.seed for trial in trials} and len({trial.seed for trial in trials}) == 3
    assert winner.test == tuple(value + 0.01 for value in winner.validation)  # judged on test data
    difference = sum(winner.test) / 3 - sum(report.baseline.test) / 3
    assert report.verdict.difference == pytest.approx(difference) and report.verdict.runs == (3, 3)


class Breakdown(NasError):
    pass


def test_finals_go_on_in_the_middle_and_are_not_repeated(describe, search, table):
    config = describe(finals=FINALS)
    ran = []

    def run(work, progress=None):
        if len(ran) in (14, 20, 22):  # once each: the finals are units 12 to 20
            ran.append(None)
            raise Breakdown("gone")
        ran.append((work.architecture, work.seed))
        return table(work)

    for _ in range(3):
        with pytest.raises(Breakdown):
            search(config, run)
    first = search(config, run)
    first.store.close()
    done = [each for each in ran if each]
    assert len(done) == len(set(done)) == 12 + 9
    count = len(ran)
    again = search(config, run)
    again.store.close()
    assert len(ran) == count and again.report == first.report


def test_a_finalist_that_fails_does_not_stand_in_the_way(describe, search, table):
    chosen = search(describe())
    best = chosen.store.trial(chosen.study.id, chosen.store.best(chosen.study.id)[0].number)
    chosen.store.close()

    def run(work, progress=None):
        if work.architecture == best.architecture:
            failure = Failure(FailureKind.NOT_FINITE, "diverged")
            return Outcome(trial=work.trial, rung=0, seconds=1.0, failure=failure)
        return table(work)

    result = search(describe(finals=FINALS), run)
    report, trials = result.report, finals_of(result)
    assert [entrant.number for entrant in report.finalists] == [report.winner.number] != [best.number]
    assert Counter(trial.state for trial in trials) == {TrialState.FAILED: 3, TrialState.COMPLETE: 6}
    assert report.verdict.runs == (3, 3)


def test_a_finalist_that_failed_on_one_seed_comes_behind_those_that_never_did(describe, search, table):
    chosen = search(describe())
    best = chosen.store.trial(chosen.study.id, chosen.store.best(chosen.study.id)[0].number)
    chosen.store.close()

    def run(work, progress=None):
        outcome = table(work)
        if work.architecture != best.architecture:
            return outcome
        if work.seed % 2:
            return Outcome(trial=work.trial, rung=0, seconds=1.0, failure=Failure(FailureKind.NOT_FINITE, "diverged"))
        return Outcome(trial=work.trial, rung=0, seconds=1.0, metrics={"loss": 0.0, "test/loss": 0.0})

    result = search(describe(finals=FINALS), run)
    result.store.close()
    assert [len(entrant.test) for entrant in result.report.finalists] == [3, 1]


def test_when_every_finalist_fails_there_is_no_report_and_no_end_of_trying(describe, search, table):
    def run(work, progress=None):
        outcome = table(work)
        if work.seed == 0:
            return outcome
        return Outcome(trial=work.trial, rung=0, seconds=1.0, failure=Failure(FailureKind.TOO_SLOW, "slow"))

    result = search(describe(finals=FINALS), run)
    assert result.report is None and len(finals_of(result)) == 6


def test_a_larger_budget_uses_the_finals_that_are_there(describe, search, table):
    ran = Counter()

    def run(work, progress=None):
        ran[work.architecture, work.seed] += 1
        return table(work)

    small = search(describe(finals=FINALS), run)
    small.store.close()
    large = search(describe(finals=FINALS, budget="{trials: 60}"), run)
    entered = {entrant.number for entrant in large.report.finalists}
    large.store.close()
    assert set(ran.values()) == {1}
    assert {entrant.number for entrant in small.report.finalists} <= entered  # trained as long, so it may still win


def test_finals_of_another_length_are_not_mixed_in(describe, search):
    search(describe(finals=FINALS)).store.close()
    result = search(describe(finals="{top: 2, seeds: 2, steps: 40}"))
    trials = finals_of(result)
    assert Counter(trial.seed for trial in trials[9:]) == {40001: 3, 40002: 3}
    assert {len(entrant.test) for entrant in result.report.finalists} == {2}


def test_a_winner_that_is_the_transformer_of_its_size_is_no_better_than_itself(describe, search):
    search_space = "{kind: decoder, width: 32, vocabulary: 256, body: !choice [attention, feed_forward]}"
    first = search(describe(space=search_space, finals="{top: 1, seeds: 2, steps: 20}"))
    twin = first.report.baseline.architecture.text()
    first.store.close()
    assert not first.report.transformer_won
    indented = "\n  " + twin.replace("\n", "\n  ")
    second_config = describe(space=indented, finals="{top: 1, seeds: 2, steps: 20}").model_copy(
        update={"study": "second"}
    )
    second = search(second_config)
    trials = finals_of(second)
    if second.report.transformer_won:
        assert second.report.baseline is None and second.report.verdict is None and len(trials) == 2
    else:
        assert second.report.baseline.architecture != second.report.winner.architecture
