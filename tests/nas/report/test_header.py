"""How a result begins: nothing that was planned, failed or was cut off disappears."""

import dataclasses

import pytest

from nas import report
from nas.engine import launch
from nas.report import summary
from nas.report.header import cut_off
from nas.runners.inline import InlineRunner
from nas.work import Failure, FailureKind

FINALS = "{top: 1, seeds: 2, steps: 20, tune: {learning_rate: [0.001, 0.003]}}"
HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


def text(result):
    return summary.to_text(result.store, result.study, None, draw=lambda winner: "")


def test_a_result_begins_with_trials_failures_and_seeds(describe, search, table):
    def run(work, progress=None):
        outcome = table(work)
        kind = {2: FailureKind.OUT_OF_MEMORY, 4: FailureKind.NOT_FINITE, 5: FailureKind.NOT_FINITE}.get(work.trial)
        return dataclasses.replace(outcome, failure=Failure(kind, "")) if kind else outcome

    result = search(describe(budget="{trials: 8}", seed="3"), run)
    with result.store:
        lines = text(result).splitlines()
        found = result.header
    assert lines[0] == (
        "trials    8 of 8 planned started; 3 failed: 2 not finite (trial 4, 5), 1 out of memory (trial 2)"
    )
    assert lines[1] == "seeds     search 3"
    assert (found.failures, found.cut_off) == ({"not finite": (4, 5), "out of memory": (2,)}, None)
    assert found.to_dict()["reproducible"]
    assert "validation 40" in dict(found.lines())["documents"] and found.to_dict()["data"]["document"] == "a file"


def test_a_failed_run_of_the_finals_is_named(describe, search, table):
    def run(work, progress=None):
        outcome = table(work)
        if work.steps == 20 and work.seed % 2:
            return dataclasses.replace(outcome, failure=Failure(FailureKind.NOT_FINITE, ""))
        return outcome

    result = search(describe(budget="{trials: 4}", finals=FINALS), run)
    with result.store:
        found = result.header
    assert sum(map(len, found.final_failures.values())) >= 1
    assert found.final_runs > sum(map(len, found.final_failures.values()))
    lines = dict(found.lines())
    assert "failed: " in lines["finals"] and "not finite (final " in lines["finals"]
    assert lines["seeds"].startswith("search 0, finals 1000, 1001")


def test_a_result_says_what_minutes_cut_off(describe, search, table):
    def slow(work, progress=None):
        return dataclasses.replace(table(work), seconds=30.0)

    result = search(describe(scheduler=HALVING, budget="{trials: 27, minutes: 2}"), slow)
    with result.store as store:
        found, seen = result.header, report.status(store, result.study)
    started = 27 - found.ending["not_started"]
    assert found.ending["limit"] == "minutes" and 0 < started < 5
    assert found.cut_off.startswith(f"minutes: 2 ended the search: {27 - started} trials not started")
    assert found.cut_off.endswith("this result cannot be reproduced exactly")
    assert dict(found.lines())["trials"].startswith(f"{started} of 27 planned started")
    assert not found.to_dict()["reproducible"]
    assert f"cut off   {found.cut_off}" in seen.to_text()


def test_minutes_that_cut_nothing_off_are_not_mentioned(describe, search):
    result = search(describe(budget="{trials: 6, minutes: 9}"))
    with result.store:
        assert result.header.cut_off is None


def test_a_promotion_that_the_budget_does_not_pay_for_is_counted(describe, search):
    result = search(describe(scheduler=HALVING, budget=f"{{tokens: {8 * 2048}, trials: 4}}"))
    with result.store:
        found = result.header
    assert found.ending["limit"] == "tokens" and found.ending["not_promoted"] >= 1
    assert "tokens ended the search" in found.cut_off and "reproduced" not in found.cut_off


def test_a_space_that_is_too_small_for_the_budget_is_named(describe, search):
    space = "{kind: decoder, width: !choice [16, 24], vocabulary: 256, body: [residual: {of: gru}]}"
    result = search(describe(space=space, budget="{trials: 4}"))
    with result.store:
        first = text(result).splitlines()[0]
    assert first == "trials    2 of 4 planned started; the space has no other architecture; none failed"


@pytest.mark.parametrize(("retry", "forgotten"), [("task error", True), (None, False)])
def test_the_ending_is_forgotten_while_a_search_goes_on(retry, forgotten, describe, search, table, monkeypatch):
    config = describe(budget="{trials: 3}")
    with search(config) as result:
        assert result.study.ending == {"limit": "trials", "not_started": 0, "not_promoted": 0}
    run, seen = launch.Search.run, []
    monkeypatch.setattr(launch.Search, "run", lambda self: seen.append(self.store.study("tried").ending) or run(self))
    with launch.search(config, quiet=True, runner=InlineRunner(table), retry_failed=retry) as again:
        assert (seen, again.study.ending) == ([None if forgotten else result.study.ending], result.study.ending)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (None, None),
        ({"limit": "space", "not_started": 4, "not_promoted": 0}, None),
        (
            {"limit": "flops", "not_started": None, "not_promoted": 1},
            "2e+12 FLOPs ended the search: 1 trial not trained further, although good enough",
        ),
    ],
)
def test_what_was_cut_off_is_a_sentence(ending, expected):
    assert cut_off(ending, {"flops": 2e12}) == expected
