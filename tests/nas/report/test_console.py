"""What a person sees while a search runs: plain lines, or a live bar on a terminal."""

import io
import threading
from dataclasses import replace

import pytest

from nas.engine import launch
from nas.engine.resolve import resolve
from nas.numbers import FIRST_FINAL
from nas.report import console
from nas.report.console import Reporter
from nas.report.tables import reason
from nas.work import Failure, FailureKind, Outcome, Progress

GROUP = """  + Exception Group Traceback (most recent call last):
  | BaseExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | SystemExit: 2
    +------------------------------------
"""
HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


class Terminal(io.StringIO):
    """A stream that passes for a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def unstarted(describe):
    """(config, store, study) of a search with finals that has not started."""
    finals = "{top: 3, seeds: 3, steps: 8, baselines: [], tune: {}}"
    config = describe(scheduler=HALVING, finals=finals, budget="{trials: 12}")
    store = launch.open_for(config)
    yield config, store, launch.enter(store, resolve(config, store))
    store.close()


def add(store, study, number, purpose="search"):
    """A running unit."""
    return store.add_trial(
        study.id, number, (f"hash{number}", "text"), seed=0, purpose=purpose, operator="random", choices={},
        known_results=0, steps=2, owner="me",
    ).unit  # fmt: skip


def reporter(unstarted, stream, **changes):
    config, store, study = unstarted
    return Reporter(store, study, budget=12, objective="loss", stream=stream, config=config, **changes)


def ended(report, unit, loss=None, seconds=2.0, failure=None):
    values = {} if loss is None else {"loss": loss}
    outcome = Outcome(trial=unit.number, rung=unit.rung, seconds=seconds, metrics=values, failure=failure)
    report.ended(unit, values, failure, outcome)


def test_a_unit_that_ended_is_a_line_and_a_failure_is_one_line_with_its_reason(unstarted):
    stream = io.StringIO()
    _, store, study = unstarted
    with reporter(unstarted, stream) as report:
        ended(report, add(store, study, 0), loss=2.5)
        text = 'Traceback (most recent call last):\n  File "x.py"\nValueError: [red] is no color\n'
        ended(report, add(store, study, 1), failure=Failure(FailureKind.TASK_ERROR, text))

    assert stream.getvalue().splitlines() == [
        "trial 0 rung 0: loss 2.5 (2.0 s)",
        "trial 1 rung 0: task error: ValueError: [red] is no color",
    ]


def test_a_line_counts_the_trials_as_the_store_has_them(unstarted):
    _, store, study = unstarted
    stream = io.StringIO()
    report = reporter(unstarted, stream)
    report._last = -1e9
    units = [add(store, study, number) for number in range(4)]
    store.finish(units[0].id, "me", 1, {"loss": 2.0}, last=True)
    store.finish(units[1].id, "me", 1, {"loss": 3.0}, last=False)
    store.fail(units[2].id, "me", 1, "too slow", "")
    with report:
        report.tick({})

    assert "4/12 trials: 1 done, 1 running, 1 paused, 1 failed | best loss 2 (rung 0)" in stream.getvalue()


def test_a_higher_rung_says_more_than_a_better_value(unstarted):
    _, store, study = unstarted
    stream = io.StringIO()
    with reporter(unstarted, stream) as report:
        unit = add(store, study, 0)
        ended(report, unit, loss=2.0)
        ended(report, replace(unit, rung=1, steps=4), loss=2.4)
        ended(report, unit, loss=1.0)
        report._last = -1e9
        report.tick({})

    assert "best loss 2.4 (rung 1)" in stream.getvalue()


def test_in_the_finals_it_says_so_and_how_long_they_take(unstarted):
    _, store, study = unstarted
    stream = io.StringIO()
    with reporter(unstarted, stream) as report:
        for number in range(3):
            unit = add(store, study, FIRST_FINAL + number, purpose="final")
            ended(report, unit, loss=2.0, seconds=10.0)
            store.finish(unit.id, "me", 1, {"loss": 2.0}, last=True, seconds=10.0)
        fourth = add(store, study, FIRST_FINAL + 3, purpose="final")
        report._last = -1e9
        report.tick({(fourth.number, 0): Progress(1, 8, 2.0, 1000.0)})

    *_, line, running = stream.getvalue().splitlines()
    assert line.startswith("3/9 finals: ")
    assert line.endswith("about 60 s left")  # six units, one after the other
    assert "best" not in line
    assert running == "  final 4: step 1/8, loss 2.000, 1,000 tokens/s"
    assert stream.getvalue().startswith("final 1 (seed 0): loss 2 (10.0 s)\n")


def test_progress_is_shown_live_on_a_terminal_and_leaves_nothing_behind(unstarted):
    _, store, study = unstarted
    stream = Terminal()
    with reporter(unstarted, stream) as report:
        ended(report, add(store, study, 0), loss=2.5)
        report._last = -1e9
        report.tick({(0, 0): Progress(1, 2, 3.125, 1000.0)})
        report._bar.refresh()

    assert "step 1/2, loss 3.125" in stream.getvalue()
    assert "trial 0 rung 0: loss" not in stream.getvalue()  # it is in the counts


def test_the_bar_moves_while_a_unit_in_this_process_keeps_the_search_busy(unstarted, monkeypatch):
    _, store, study = unstarted
    monkeypatch.setattr(console, "LIVE_SECONDS", 0.01)
    stream, drawn = Terminal(), threading.Event()
    with reporter(unstarted, stream) as report:
        add(store, study, 0)
        monkeypatch.setattr(report._bar, "update", lambda head, running: drawn.set() if running else None)
        report.watch(lambda: {(0, 0): Progress(1, 2, 3.125, 1000.0)})
        assert drawn.wait(30)


def test_a_quiet_search_says_nothing(unstarted):
    _, store, study = unstarted
    stream = Terminal()
    with reporter(unstarted, stream, quiet=True) as report:
        report._last = -1e9
        ended(report, add(store, study, 0), loss=2.5)
        report.tick({})
        report.say("hello")

    assert stream.getvalue() == ""


def test_the_store_is_asked_seldom(unstarted, monkeypatch):
    _, store, _ = unstarted
    asked = []
    counts = store.counts
    monkeypatch.setattr(store, "counts", lambda study: asked.append(study) or counts(study))
    with reporter(unstarted, Terminal()) as report:
        report._last = -1e9
        for _ in range(100):
            report._interval = max(report._interval, 60)
            report.tick({})

    assert len(asked) <= 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no reason given"), (GROUP, "SystemExit: 2"), ("one\n two \n\n", "two"), ("x" * 500, "x" * 197 + "...")],
)
def test_the_reason_of_a_failure_is_its_last_line(text, said):
    assert reason(text) == said
