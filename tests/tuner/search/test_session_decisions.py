"""A session over real candidates: what wins, what is kept, and what is not even tried."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernels.dispatch.registry import THREADS, Choice, Implementation, Problem, register
from tuner.measure.measure import LEAST_ROUNDS
from tuner.measure.precompile import Precompiler
from tuner.outcome import Kind, Outcome
from tuner.search import candidates
from tuner.search.cache import Known
from tuner.search.decision import decide
from tuner.search.effort import effort
from tuner.search.operation_bench import OperationBench
from tuner.search.session import Session


def test_the_fastest_right_choice_wins_and_what_failed_is_counted(pretended, store, faulty, run):
    report = run(store, faulty)
    (decision,) = report.decisions

    assert decision.choice == Choice.of("right", {"block": 16})
    assert decision.gain.median == pytest.approx(2.0)
    assert decision.why == "faster than the default, 2.00 times [2.00, 2.00]"
    assert decision.regret == pytest.approx(1.0)
    assert decision.failures == {"wrong": 2, "crashed": 9}
    assert report.measured == len(store.rows("faulty"))


def test_a_default_is_kept_when_the_gain_is_within_the_noise(pretended, store, faulty, monkeypatch, pretending, run):
    def noisy(self, choice, repeats):
        if choice.implementation not in self.speed:
            return Outcome(Kind.CRASHED)
        faster = dict(choice.configuration).get("block") == 16
        wave = [1.3 if (number + faster) % 2 else 0.9 for number in range(repeats)]
        return Outcome(Kind.TIMED, tuple(wave))

    monkeypatch.setattr(pretending, "outcome", noisy)
    (decision,) = run(store, faulty).decisions

    assert decision.choice == decision.default == Choice.of("right", {"block": 8})
    assert decision.gain is None
    assert "default" in decision.why


def test_a_comparison_that_was_disturbed_is_made_again_in_more_rounds(
    pretended, store, faulty, monkeypatch, pretending, run
):
    rounds = disturb(monkeypatch, pretending)
    first = run(store, faulty)

    assert rounds[-2:] == [15, 45]
    assert first.decisions[0].choice == Choice.of("right", {"block": 16})
    assert run(store, faulty).measured == 0


def test_a_comparison_that_does_not_fit_into_the_session_is_not_made_again(
    pretended, store, faulty, monkeypatch, pretending, run
):
    rounds = disturb(monkeypatch, pretending)
    monkeypatch.setattr(
        OperationBench, "comparison_seconds", lambda self, times, more: 1e9 if more > 3 else 100.0 * more
    )
    first = run(store, faulty)  # of 140 s

    assert rounds[-1] == 15
    assert first.decisions[0].choice == first.decisions[0].default


def test_a_failure_that_may_be_temporary_in_a_repeated_comparison_changes_no_decision(
    pretended, store, faulty, monkeypatch, pretending, run
):
    default = Choice.of("right", {"block": 8})
    rounds = disturb(monkeypatch, pretending, {(default, 45): Outcome(Kind.TIMED_OUT)})
    (decision,) = run(store, faulty).decisions

    assert rounds[-2:] == [15, 45], "and no third time"
    assert decision.choice == default and "not faster than the default" in decision.why
    assert decision.failures["timed_out"] == 1


def test_a_choice_that_was_disturbed_when_it_was_timed_alone_is_compared_in_the_time_that_is_left(
    pretended, store, faulty, monkeypatch, pretending, run
):
    best = Choice.of("right", {"block": 16})
    alone = Outcome(Kind.TIMED, (40.0,) * 6 + (0.5,))
    rounds = disturb(monkeypatch, pretending, {(best, 7): alone})
    (decision,) = run(store, faulty).decisions

    assert rounds == [7, 45], "it was no finalist"
    assert decision.choice == best
    assert run(store, faulty).measured == 0


def disturb(monkeypatch, pretending, instead=None):
    """The fastest choice is disturbed in its first comparison -> the rounds in which it was asked for. instead: of
    what a choice gives for a number of rounds."""
    rounds, whole = [], pretending.outcome

    def pausing(self, choice, repeats):
        found = whole(self, choice, repeats)
        if choice == Choice.of("right", {"block": 16}):
            rounds.append(repeats)
            disturbed = 5 if repeats == 15 else 0
            found = replace(found, samples=found.samples[disturbed:] + disturbed * (40.0,))
        return (instead or {}).get((choice, repeats), found)

    monkeypatch.setattr(pretending, "outcome", pausing)
    return rounds


def test_a_finalist_that_is_wrong_on_other_inputs_is_never_served(
    pretended, store, faulty, monkeypatch, pretending, run
):
    whole = pretending.run

    def unmasked(self, job):
        outcomes = whole(self, job)
        best = Choice.of("right", {"block": 16})
        if len(job.choices) == 1:
            return outcomes
        return tuple(
            Outcome(Kind.WRONG, message="at last") if choice == best else outcome
            for choice, outcome in zip(job.choices, outcomes, strict=True)
        )

    monkeypatch.setattr(pretending, "run", unmasked)
    (decision,) = run(store, faulty).decisions

    assert decision.choice != Choice.of("right", {"block": 16})
    assert decision.failures["wrong"] == 3


def test_a_default_that_fails_is_replaced_by_what_works(pretended, store, faulty, monkeypatch, pretending, run):
    whole = pretending.outcome
    default = Choice.of("right", {"block": 8})
    monkeypatch.setattr(
        pretending, "outcome", lambda s, c, r: Outcome(Kind.CRASHED) if c == default else whole(s, c, r)
    )
    (decision,) = run(store, faulty).decisions

    assert decision.choice == Choice.of("right", {"block": 16})
    assert decision.why == "the default cannot serve: crashed"


def test_no_effort_decides_by_what_is_known(pretended, store, faulty, run):
    assert run(store, faulty, effort="none").undecided == [faulty.problem(32)]
    known = run(store, faulty)
    assert run(store, faulty, effort="none").decisions == known.decisions


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        ((Kind.CALL, Kind.CALL), "nothing could be checked: call: the definition: RuntimeError: no such size"),
        ((Kind.CALL, Kind.WRONG), "no candidate gives the result of the definition"),
        ((), "no candidate gives the result of the definition"),
    ],
)
def test_without_a_choice_it_says_whether_anything_could_be_checked(kinds, says):
    problem = Problem("x", "cpu", "float32", ())
    message = "the definition: RuntimeError: no such size"
    known = {Choice.of("ab"[n]): Known(Outcome(kind, message=message), None) for n, kind in enumerate(kinds)}
    decision = decide(problem, Choice.of("a"), {}, known)

    assert (decision.choice, decision.why) == (None, says)


def test_what_a_compiler_must_look_at_comes_when_all_is_decided(pretended, store, faulty, changed):
    changed(faulty, built=Implementation("built", faulty.right, builds=True))
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.speed["built"] = 0.1
    report = session.run({"faulty": [faulty.problem(16), faulty.problem(32)]})

    names = [[choice.implementation for choice in choices] for choices in session.children.asked]
    comparisons = [number for number, choices in enumerate(names) if len(choices) > 1]
    assert names.index(["built"]) > comparisons[1]  # both were decided before
    assert [each.choice.implementation for each in report.decisions] == ["built", "built"]


def test_builds_are_compiled_in_batches_and_come_last_where_one_lost(pretended, store, faulty, monkeypatch, changed):
    changed(faulty, built=Implementation("built", faulty.right, builds=True))
    several = {**faulty.FAULTY.implementations, "lost": Implementation("lost", faulty.right, builds=True)}
    register(replace(faulty.FAULTY, name="other", implementations=several))
    compiled, batches = [], []
    monkeypatch.setattr(Precompiler, "most", 2)
    monkeypatch.setattr(Precompiler, "compile_next", lambda self, problem, some: compiled.extend(some))
    monkeypatch.setattr(Precompiler, "wait", lambda self, seconds: batches.append(len(compiled)) or set())
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.speed |= {"built": 0.1, "lost": 9.0}
    problems = [faulty.problem(rows) for rows in (16, 32, 64)]
    session.run({"faulty": problems, "other": [replace(each, operation="other") for each in problems]})

    names = [choices[0].implementation for choices in session.children.asked if len(choices) == 1]
    assert [name for name in names if name in ("built", "lost")] == ["built", "lost", "built", "built", "lost", "lost"]
    assert batches == [2, 4, 6]


def test_a_build_is_compared_although_others_were_faster_while_they_were_timed_alone(
    pretended, store, faulty, monkeypatch, pretending, changed
):
    changed(faulty, built=Implementation("built", faulty.right, builds=True))
    whole = pretending.outcome

    def warm(self, choice, repeats):  # alone, the data of some are in the caches
        found, faster = whole(self, choice, repeats), repeats == 7 and choice.implementation != "built"
        return replace(found, samples=tuple(each / 4 for each in found.samples)) if faster else found

    monkeypatch.setattr(pretending, "outcome", warm)
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.speed |= {"built": 0.45, "small": 1.1}
    (decision,) = session.run({"faulty": [faulty.problem(32)]}).decisions

    first = next(some for some in session.children.asked if len(some) > 1 and Choice.of("built") in some)
    assert Choice.of("small") not in first, "it was no finalist, and took .275 ms alone"
    assert decision.choice == Choice.of("built")


def test_a_build_that_takes_too_long_is_not_tried_again_where_it_would_be_timed(
    pretended, store, faulty, monkeypatch, changed
):
    changed(faulty, built=Implementation("built", faulty.right, builds=True))
    monkeypatch.setattr(Precompiler, "wait", lambda self, seconds: {(faulty.problem(16), Choice.of("built"))})
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.speed["built"] = 0.1
    report = session.run({"faulty": [faulty.problem(16), faulty.problem(32)]})

    assert [each.choice.implementation for each in report.decisions] == ["right", "built"]
    assert report.unbuilt == 1


def test_a_session_counts_what_it_had_no_time_to_build(pretended, store, faulty, changed):
    changed(faulty, built=Implementation("built", faulty.right, builds=True))
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.patience.known["built"] = 1e9  # seconds that it takes
    report = session.run({"faulty": [faulty.problem(16), faulty.problem(32)]})

    assert (report.unbuilt, len(report.decisions)) == (2, 2)


def test_a_build_that_cannot_win_changes_nothing_and_is_not_tried_again(pretended, store, faulty, run, changed):
    changed(faulty, slow=Implementation("slow", faulty.slow, builds=True))
    first = run(store, faulty)
    (asked,) = (made.asked for made in pretended)

    assert [choice.implementation for choice in asked[-1]] == ["slow"]
    assert first.decisions[0].choice == Choice.of("right", {"block": 16})
    assert run(store, faulty).measured == 0


def test_what_the_roofline_rules_out_is_not_tried(pretended, store, faulty, run, changed):
    def hopeless(configuration, problem):
        return 1e12, 0.0  # at 1e9 a second far beyond the best

    changed(faulty, slow=Implementation("slow", faulty.slow, work=hopeless))
    report = run(store, faulty)

    assert "slow" not in {choice.implementation for choices in pretended[0].asked for choice in choices}
    assert report.decisions[0].choice == Choice.of("right", {"block": 16})
    assert run(store, faulty).measured == 0


def test_the_promising_configurations_come_first(pretended, store, faulty, run, changed):
    def more_for_small(configuration, problem):
        return 1e3 / configuration["block"], 0.0

    many = {"block": tuple(2**power for power in range(2, 15))}
    changed(faulty, right=Implementation("right", faulty.right, many, default={"block": 8}, work=more_for_small))
    run(store, faulty)
    blocks = [dict(c[0].configuration).get("block") for c in pretended[0].asked if c[0].implementation == "right"]

    assert blocks[:3] == [8, 2**14, 2**13]


def test_fewer_threads_are_a_candidate_on_a_cpu(faulty):
    choice, problem = Choice.of("right", {"block": 8}), faulty.problem(8)
    one = candidates.on_one_thread(choice, problem, 2)

    assert dict(one.configuration)[THREADS] == 1
    faulty.FAULTY.check(one, problem)
    assert candidates.on_one_thread(one, problem, 2) is None
    assert candidates.on_one_thread(choice, problem, 1) is None


@pytest.mark.parametrize(("choices", "least", "seconds"), [(1, 1, 3.8), (2, LEAST_ROUNDS, 30.4)])
def test_a_slow_default_without_rivals_takes_little_of_the_session(faulty, choices, least, seconds):
    """On a GPU seven rounds of one choice that takes 1.9 seconds took a third of a session."""
    jobs = []

    def run(job):
        jobs.append(job)
        return [Outcome(Kind.TIMED, (1900.0,))] * len(job.choices)

    children = SimpleNamespace(run=run, left=lambda: 600.0, expected=lambda choice: 0.0)
    bench = OperationBench(faulty.FAULTY, faulty.problem(8), children, None, effort("quick"), 0)
    bench.compare({Choice.of("right", {"block": number}): 1900.0 for number in range(choices)})

    assert jobs[0].least == least and jobs[0].budget_seconds == pytest.approx(seconds)
