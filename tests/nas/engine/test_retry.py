"""Failed trials of a kind are tried again, and the log of the study still replays."""

import dataclasses

import pytest

import nas
from nas.engine.replay import replay
from nas.errors import UsageError
from nas.numbers import FIRST_FINAL
from nas.runners.inline import InlineRunner
from nas.store import TrialState
from nas.work import Failure, FailureKind

STRATEGY = "{nsga2: {start: 3, population: 4}}"
HALVING = "{halving: {rungs: [2, 4], factor: 2}}"
MEMORY = FailureKind.OUT_OF_MEMORY


@pytest.fixture
def run(describe, table):
    """`run(trials, failing, retry)`: the search of this file, in which trials with these numbers fail at rung 0."""

    def made(trials: int, failing: dict[int, FailureKind], retry: str | None = None):
        def unit(work, progress=None):
            kind = failing.get(work.trial)
            failure = Failure(kind, "too large") if kind else None
            return dataclasses.replace(table(work), failure=failure)

        config = describe(strategy=STRATEGY, scheduler=HALVING, budget=f"{{trials: {trials}}}")
        return nas.search(config, quiet=True, runner=InlineRunner(unit), retry_failed=retry)

    return made


def test_a_failed_trial_is_tried_again_and_the_log_still_replays(run):
    with run(8, {2: MEMORY, 4: MEMORY, 5: FailureKind.NOT_FINITE}) as result:
        before = result.store.trials(result.study.id)
    with run(8, {}, retry="out of memory") as result:
        store, study = result.store, result.study
        trials = store.trials(study.id)
        again = [each for each in trials if each.operator == "retry"]
        assert [each.parents for each in again] == [(2,), (4,)] and {each.values != {} for each in again} == {True}
        assert [each.architecture_hash for each in again] == [trials[n].architecture_hash for n in (2, 4)]
        assert {trials[n].state for n in (2, 4, 5)} == {TrialState.FAILED}
        assert [each.architecture_hash for each in trials[:8]] == [each.architecture_hash for each in before]
        assert replay(store, study).same


def test_a_search_goes_on_after_a_retry_and_its_proposals_replay(run):
    with run(8, {2: MEMORY}):
        pass
    with run(8, {}, retry="out of memory"):
        pass
    with run(14, {}) as result:
        found = replay(result.store, result.study)
        assert found.same and (found.trials, found.given) == (14, 1)
        assert not result.store.open_units(result.study.id)


def test_a_trial_is_tried_again_once_and_so_is_a_retry_that_failed(run):
    with run(6, {1: MEMORY}):
        pass
    counts = []
    for failing in ({6: MEMORY}, {}, {}):
        with run(6, failing, retry="out of memory") as result:
            counts.append(sum(each.operator == "retry" for each in result.store.trials(result.study.id)))
    assert counts == [1, 2, 2]


def test_failed_finals_are_counted_and_not_tried_again(describe, table, capsys):
    def unit(work, progress=None):
        failure = Failure(MEMORY, "too large") if work.trial >= FIRST_FINAL else None
        return dataclasses.replace(table(work), failure=failure)

    finals = "{top: 1, seeds: 1, steps: 20, baselines: [], tune: {}}"
    config = describe(scheduler=HALVING, budget="{trials: 3}", finals=finals)
    for retry in (None, "out of memory"):
        nas.search(config, runner=InlineRunner(unit), retry_failed=retry).store.close()
    said = " ".join(capsys.readouterr().err.split())
    assert "Failed trials that are tried again: 0. 1 final failed too (out of memory); finals are not tried" in said


def test_an_unknown_kind_names_the_nearest(run):
    with pytest.raises(UsageError, match=r"'out of memry'.*out of memory"):
        run(6, {}, retry="out of memry")
