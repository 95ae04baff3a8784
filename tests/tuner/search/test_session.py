"""A session measures what is not known, resumes after anything, and stays within its budget."""

import pytest

from kernels.dispatch.registry import Choice, Implementation, register
from tuner.measure.children import MOST_KILLED
from tuner.outcome import Kind, Outcome
from tuner.search.results import Results
from tuner.search.session import Session


@pytest.fixture
def only():
    """`only(faulty, name, ...)`: register the operation with these implementations alone."""

    def call(faulty, *names):
        some = {name: faulty.FAULTY.implementations[name] for name in names}
        register(type(faulty.FAULTY)(**{**vars(faulty.FAULTY), "implementations": some}))

    return call


def test_the_same_command_again_measures_nothing_and_decides_the_same(pretended, store, faulty, run):
    first = run(store, faulty, 16, 32)
    again = run(store, faulty, 16, 32)

    assert (again.measured, pretended[1].asked) == (0, [])
    assert again.decisions == first.decisions


def test_an_interrupted_session_goes_on_where_it_was(pretended, store, faulty, monkeypatch, run):
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.interrupt_at = 4
    report = session.run({"faulty": [faulty.problem(32)]})
    assert (report.interrupted, len(store.rows("faulty"))) == (True, 4)
    assert report.undecided == [faulty.problem(32)]

    rest = run(store, faulty)
    before = {choice for choices in session.children.asked[:4] for choice in choices}
    singles = [choices[0] for choices in pretended[1].asked if len(choices) == 1]
    assert not before & set(singles)
    assert len(rest.decisions) == 1


def test_one_configuration_more_costs_one_timing_and_a_comparison(pretended, store, faulty, monkeypatch, run):
    run(store, faulty)
    more = Implementation(
        "right", faulty.right, parameters={"block": (4, 8, 16, 32)}, default={"block": 8}, gradients=True
    )
    implementations = {**faulty.FAULTY.implementations, "right": more}
    register(type(faulty.FAULTY)(**{**vars(faulty.FAULTY), "implementations": implementations}))
    run(store, faulty)

    (single, finals) = pretended[1].asked
    assert single == (Choice.of("right", {"block": 32}),)
    assert len(finals) == 3


def test_what_changed_is_measured_again(pretended, store, faulty, monkeypatch, run):
    run(store, faulty)
    monkeypatch.setattr(Implementation, "source", property(lambda self: "new"))

    assert run(store, faulty).measured > 0


def test_more_effort_goes_on_and_less_does_not(pretended, store, faulty, run):
    run(store, faulty)
    assert run(store, faulty, effort="full").measured > 0
    assert run(store, faulty, effort="quick").measured == 0


def test_what_is_known_is_measured_again_on_request(pretended, store, faulty, run):
    first = run(store, faulty)
    again = run(store, faulty, again=True)

    assert again.measured == first.measured > 0
    assert run(store, faulty).measured == 0


def test_what_may_have_been_temporary_is_tried_again_by_a_later_session(
    pretended, store, faulty, monkeypatch, pretending, run
):
    kinds = iter([Kind.TIMED_OUT] * 3)
    real = pretending.outcome

    def busy(self, choice, repeats):
        if choice.implementation == "small" and (kind := next(kinds, None)):
            return Outcome(kind, message="busy")
        return real(self, choice, repeats)

    monkeypatch.setattr(pretending, "outcome", busy)
    tried = []
    for effort in ("quick", "quick", "quick", "quick"):
        report = run(store, faulty, effort=effort, again=False)
        tried.append([row.failure for row in store.rows() if row.implementation == "small"])
        for found in report.decisions:
            assert found.choice.implementation == "right"
    assert tried == [["timed_out"] * each for each in (1, 2, 3, 3)], "by two later sessions"


def test_on_a_gpu_the_configurations_that_come_next_are_compiled_ahead(
    pretended, store, faulty, monkeypatch, run, changed
):
    told = []
    monkeypatch.setattr(
        "tuner.measure.precompile.Precompiler.compile_next", lambda self, problem, some: told.append(list(some))
    )
    right = Implementation("right", faulty.right, {"block": (4, 8, 16)}, default={"block": 8}, files=("x_triton",))
    monkeypatch.setattr(Implementation, "source", property(lambda self: "same"))
    changed(faulty, right=right)
    run(store, faulty)

    assert [[dict(choice.configuration)["block"] for choice in some] for some in told] == [[4, 16], [16]]


def test_loading_a_child_takes_nothing_from_the_share_of_the_first_problem(
    pretended, store, faulty, monkeypatch, pretending, run
):
    whole, now = pretending.run, [0.0]

    def slow_to_start(self, job):
        if not self.started:
            self.started, now[0] = 1, now[0] + 25.0
        return whole(self, job)

    monkeypatch.setattr(pretending, "run", slow_to_start)
    monkeypatch.setattr("tuner.search.search.time.monotonic", lambda: now[0])
    report = run(store, faulty, budget_seconds=30.0)

    assert report.decisions[0].choice == Choice.of("right", {"block": 16})


def test_no_session_outlives_its_budget(pretended, store, faulty, monkeypatch, pretending, run):
    whole = pretending.run

    def late(self, job):
        if len(self.asked) == 3:
            self.end = 0.0
        return whole(self, job)

    monkeypatch.setattr(pretending, "run", late)
    report = run(store, faulty, 16, 32)

    assert (report.interrupted, len(report.undecided), report.measured) == (True, 2, 3)
    assert len(store.rows()) == 3  # what the end cut short is no measurement


def test_a_session_runs_with_real_children(tmp_path, store, faulty, patience, root, run):
    """Crashes, hangs and wrong answers among the candidates: each is a row, and what serves is right."""
    report = run(store, faulty, patience=patience, load=[str(root / "tests/tuner/faulty_operation.py")])
    (decision,) = report.decisions
    failures = {row.implementation: row.failure for row in store.rows() if row.failure}

    assert decision.choice.implementation in ("right", "small")
    assert failures["crashes"] == failures["raises"] == "crashed"
    assert (failures["hangs"], failures["wrong"], failures["without_gradients"]) == ("timed_out", "wrong", "refused")


@pytest.mark.parametrize("what", ["definition", "check", "time"])
def test_finalists_stay_if_their_process_is_killed_while_they_are_compared(
    tmp_path, faulty, patience, root, run, killing, only, what
):
    only(faulty, "right")
    files = [str(root / "tests/tuner/faulty_operation.py"), killing(what, times=2, least=2)]
    store = Results(tmp_path / "kernels")
    report = run(store, faulty, patience=patience, load=files)

    (decision,) = report.decisions
    assert (decision.choice.implementation, decision.failures, report.killed) == ("right", {}, 2)
    assert [row.failure for row in store.rows() if row.failure] == []
    assert len({row.configuration for row in store.rows() if row.turns}) > 1


def test_a_comparison_that_is_killed_again_and_again_is_left_to_the_next_session(
    tmp_path, faulty, patience, root, run, killing, only
):
    only(faulty, "right")
    files = [str(root / "tests/tuner/faulty_operation.py"), killing("time", times=MOST_KILLED, least=2)]
    store = Results(tmp_path / "kernels")
    first = run(store, faulty, 16, 32, patience=patience, load=files)
    assert (first.undecided, first.interrupted, first.killed) == ([faulty.problem(16)], True, MOST_KILLED)
    assert [each.problem for each in first.decisions] == [faulty.problem(32)], "the session goes on with the others"

    second = run(store, faulty, 16, 32, patience=patience, load=files)
    assert (second.undecided, second.killed) == ([], 0)
    assert [row.failure for row in store.rows() if row.failure] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [({"effort": "huge"}, "effort must be one of none, quick, full"), ({"device": "tpu"}, "must be 'cpu'")],
)
def test_rejects_what_it_does_not_know(options, says, store, faulty, run):
    with pytest.raises(ValueError, match=says):
        run(store, faulty, **options)
