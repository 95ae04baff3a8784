"""A session measures what is not known, decides in pairs, resumes after anything, and never serves what is wrong."""

import threading

import pytest

from kernels.dispatch import sources, table, tuned
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import THREADS, Choice, Implementation, Problem, register
from tuner.measure.children import Children, TimeIsUp
from tuner.measure.roofline import Rates
from tuner.outcome import Kind, Outcome
from tuner.search import candidates, exchange, tables
from tuner.search.cache import Known
from tuner.search.decision import decide
from tuner.search.session import Session, tune

SPEED = {"right": 1.0, "slow": 9.0, "small": 2.0}


class Pretended(Children):
    """Children that measure at once: what is wrong or dies is as in the operation with faults, times are made up."""

    def __init__(self, settings, patience=None):
        super().__init__(settings, patience)
        self.asked = []
        self.speed = dict(SPEED)
        self.interrupt_at = None
        self.rates = Rates(lambda probe: 1e9)

    def run(self, job):
        if self.left() <= 0:
            raise TimeIsUp
        self.asked.append(job.choices)
        if self.interrupt_at is not None and len(self.asked) > self.interrupt_at:
            raise KeyboardInterrupt
        return tuple(self.outcome(choice, job.repeats) for choice in job.choices)

    def outcome(self, choice, repeats):
        name = choice.implementation
        if name not in self.speed:
            return Outcome(Kind.WRONG if "wrong" in name else Kind.CRASHED, message=name)
        block = dict(choice.configuration).get("block", 8)
        base = self.speed[name] * (0.5 if block == 16 else 1.0)
        return Outcome(Kind.TIMED, tuple(base * (1 + 0.01 * (number % 3)) for number in range(repeats)))


@pytest.fixture
def pretended(monkeypatch):
    made = []

    def make(settings, patience):
        made.append(Pretended(settings, patience))
        return made[-1]

    monkeypatch.setattr("tuner.search.session.Children", make)
    return made


@pytest.fixture
def store(tmp_path):
    pytest.importorskip("sqlalchemy")
    from nas.store import open_store

    with open_store(tmp_path / "tuning.db") as found:
        yield found


def run(store, faulty, *rows, **options):
    problems = [faulty.problem(each) for each in rows or (32,)]
    return tune({"faulty": problems}, store=store, **({"threads": 1, "effort": "quick"} | options))


def test_the_fastest_right_choice_wins_and_what_failed_is_counted(pretended, store, faulty):
    report = run(store, faulty)
    (decision,) = report.decisions

    assert decision.choice == Choice.of("right", {"block": 16})
    assert decision.gain.median == pytest.approx(2.0)
    assert decision.why == "faster than the default, 2.00 times [2.00, 2.00]"
    assert decision.regret == pytest.approx(1.0)
    assert decision.failures == {"wrong": 2, "crashed": 8}
    assert report.measured == len(store.measurements("faulty"))


def test_the_same_command_again_measures_nothing_and_decides_the_same(pretended, store, faulty):
    first = run(store, faulty, 16, 32)
    again = run(store, faulty, 16, 32)

    assert (again.measured, pretended[1].asked) == (0, [])
    assert again.decisions == first.decisions


def test_an_interrupted_session_goes_on_where_it_was(pretended, store, faulty, monkeypatch):
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.interrupt_at = 4
    report = session.run({"faulty": [faulty.problem(32)]})
    assert (report.interrupted, len(store.measurements("faulty"))) == (True, 4)
    assert report.undecided == [faulty.problem(32)]

    rest = run(store, faulty)
    before = {choice for choices in session.children.asked[:4] for choice in choices}
    singles = [choices[0] for choices in pretended[1].asked if len(choices) == 1]
    assert not before & set(singles)
    assert len(rest.decisions) == 1


def test_one_configuration_more_costs_one_timing_and_a_comparison(pretended, store, faulty, monkeypatch):
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


def test_what_changed_is_measured_again(pretended, store, faulty, monkeypatch):
    run(store, faulty)
    monkeypatch.setattr(Implementation, "source", property(lambda self: "new"))

    assert run(store, faulty).measured > 0


def test_a_default_is_kept_when_the_gain_is_within_the_noise(pretended, store, faulty, monkeypatch):
    def noisy(self, choice, repeats):
        if choice.implementation not in SPEED:
            return Outcome(Kind.CRASHED)
        faster = dict(choice.configuration).get("block") == 16
        wave = [1.3 if (number + faster) % 2 else 0.9 for number in range(repeats)]
        return Outcome(Kind.TIMED, tuple(wave))

    monkeypatch.setattr(Pretended, "outcome", noisy)
    (decision,) = run(store, faulty).decisions

    assert decision.choice == decision.default == Choice.of("right", {"block": 8})
    assert decision.gain is None
    assert "default" in decision.why


def test_a_finalist_that_is_wrong_on_other_inputs_is_never_served(pretended, store, faulty, monkeypatch):
    whole = Pretended.run

    def unmasked(self, job):
        outcomes = whole(self, job)
        best = Choice.of("right", {"block": 16})
        if len(job.choices) == 1:
            return outcomes
        return tuple(
            Outcome(Kind.WRONG, message="at last") if choice == best else outcome
            for choice, outcome in zip(job.choices, outcomes, strict=True)
        )

    monkeypatch.setattr(Pretended, "run", unmasked)
    (decision,) = run(store, faulty).decisions

    assert decision.choice != Choice.of("right", {"block": 16})
    assert decision.failures["wrong"] == 3


def test_where_nothing_is_right_nothing_is_written_into_the_table(pretended, store, faulty, monkeypatch):
    monkeypatch.setattr(Pretended, "outcome", lambda self, choice, repeats: Outcome(Kind.WRONG, message="all"))
    (decision,) = run(store, faulty).decisions

    assert decision.choice is None
    assert tables.entries([decision]) == []


def test_a_default_that_fails_is_replaced_by_what_works(pretended, store, faulty, monkeypatch):
    whole = Pretended.outcome
    default = Choice.of("right", {"block": 8})
    monkeypatch.setattr(Pretended, "outcome", lambda s, c, r: Outcome(Kind.CRASHED) if c == default else whole(s, c, r))
    (decision,) = run(store, faulty).decisions

    assert decision.choice == Choice.of("right", {"block": 16})
    assert decision.why == "the default cannot serve: crashed"


def test_no_effort_decides_by_what_is_known(pretended, store, faulty):
    assert run(store, faulty, effort="none").undecided == [faulty.problem(32)]
    known = run(store, faulty)
    assert run(store, faulty, effort="none").decisions == known.decisions


def test_more_effort_goes_on_and_less_does_not(pretended, store, faulty):
    run(store, faulty)
    assert run(store, faulty, effort="full").measured > 0
    assert run(store, faulty, effort="quick").measured == 0


def test_what_is_known_is_measured_again_on_request(pretended, store, faulty):
    first = run(store, faulty)
    again = run(store, faulty, again=True)

    assert again.measured == first.measured > 0
    assert run(store, faulty).measured == 0


def test_what_may_have_been_temporary_is_tried_again_by_a_later_session(pretended, store, faulty, monkeypatch):
    kinds = iter([Kind.TIMED_OUT] * 3)
    real = Pretended.outcome

    def busy(self, choice, repeats):
        if choice.implementation == "small" and (kind := next(kinds, None)):
            return Outcome(kind, message="busy")
        return real(self, choice, repeats)

    monkeypatch.setattr(Pretended, "outcome", busy)
    tried = []
    for effort in ("quick", "full", "full", "full"):
        report = run(store, faulty, effort=effort, again=False)
        tried.append([row.failure for row in store.measurements() if row.implementation == "small"])
        for found in report.decisions:
            assert found.choice.implementation == "right"
    assert tried[0] == ["timed_out"] and tried[1] == ["timed_out"] * 2


def test_a_session_says_how_many_configurations_are_left(pretended, store, faulty):
    report = run(store, faulty)
    assert 0 < report.tried <= report.possible


def test_one_candidate_alone_is_not_called_the_fastest():
    problem = Problem("x", "cpu", "float32", ())
    known = Known(Outcome(Kind.TIMED, (1.0,) * 7), 1.0)
    decision = decide(problem, Choice.of("a"), {Choice.of("a"): known}, {Choice.of("a"): known})

    assert "fastest" not in decision.why


def test_a_budget_of_nothing_leaves_the_problems_undecided(pretended, store, faulty):
    report = run(store, faulty, budget_seconds=0.0)
    assert (report.undecided, report.interrupted, report.measured) == ([faulty.problem(32)], True, 0)


def changed(faulty, **implementations):
    """The operation with other implementations beside its own."""
    several = {**faulty.FAULTY.implementations, **implementations}
    register(type(faulty.FAULTY)(**{**vars(faulty.FAULTY), "implementations": several}))


def test_what_a_compiler_must_look_at_comes_when_all_is_decided(pretended, store, faulty):
    changed(faulty, built=Implementation("built", faulty.right, builds=True))
    session = Session(store, "cpu", "quick", None, 0, 1, (), None, None)
    session.children.speed["built"] = 0.1
    report = session.run({"faulty": [faulty.problem(16), faulty.problem(32)]})

    names = [[choice.implementation for choice in choices] for choices in session.children.asked]
    comparisons = [number for number, choices in enumerate(names) if len(choices) > 1]
    assert names.index(["built"]) > comparisons[1]  # both were decided before
    assert [each.choice.implementation for each in report.decisions] == ["built", "built"]


def test_a_build_that_cannot_win_changes_nothing_and_is_not_tried_again(pretended, store, faulty):
    changed(faulty, slow=Implementation("slow", faulty.slow, builds=True))
    first = run(store, faulty)
    (asked,) = (made.asked for made in pretended)

    assert [choice.implementation for choice in asked[-1]] == ["slow"]
    assert first.decisions[0].choice == Choice.of("right", {"block": 16})
    assert run(store, faulty).measured == 0


def test_on_a_gpu_the_configurations_that_come_next_are_compiled_ahead(pretended, store, faulty, monkeypatch):
    told = []
    monkeypatch.setattr(
        "tuner.measure.precompile.Precompiler.compile_next", lambda self, problem, some: told.append(list(some))
    )
    right = Implementation("right", faulty.right, {"block": (4, 8, 16)}, default={"block": 8}, files=("x_triton",))
    monkeypatch.setattr(Implementation, "source", property(lambda self: "same"))
    changed(faulty, right=right)
    run(store, faulty)

    assert [[dict(choice.configuration)["block"] for choice in some] for some in told] == [[4, 16], [16]]


def test_loading_a_child_takes_nothing_from_the_share_of_the_first_problem(pretended, store, faulty, monkeypatch):
    whole, now = Pretended.run, [0.0]

    def slow_to_start(self, job):
        if not self.started:
            self.started, now[0] = 1, now[0] + 25.0
        return whole(self, job)

    monkeypatch.setattr(Pretended, "run", slow_to_start)
    monkeypatch.setattr("tuner.search.search.time.monotonic", lambda: now[0])
    report = run(store, faulty, budget_seconds=30.0)

    assert report.decisions[0].choice == Choice.of("right", {"block": 16})


def test_what_the_roofline_rules_out_is_not_tried(pretended, store, faulty):
    def hopeless(configuration, problem):
        return 1e12, 0.0  # at 1e9 a second far beyond the best

    changed(faulty, slow=Implementation("slow", faulty.slow, work=hopeless))
    report = run(store, faulty)

    assert "slow" not in {choice.implementation for choices in pretended[0].asked for choice in choices}
    assert report.decisions[0].choice == Choice.of("right", {"block": 16})
    assert run(store, faulty).measured == 0


def test_the_promising_configurations_come_first(pretended, store, faulty):
    def more_for_small(configuration, problem):
        return 1e3 / configuration["block"], 0.0

    many = {"block": tuple(2**power for power in range(2, 15))}
    changed(faulty, right=Implementation("right", faulty.right, many, default={"block": 8}, work=more_for_small))
    run(store, faulty)
    blocks = [dict(c[0].configuration).get("block") for c in pretended[0].asked if c[0].implementation == "right"]

    assert blocks[:3] == [8, 2**14, 2**13]


def test_no_session_outlives_its_budget(pretended, store, faulty, monkeypatch):
    whole = Pretended.run

    def late(self, job):
        if len(self.asked) == 3:
            self.end = 0.0
        return whole(self, job)

    monkeypatch.setattr(Pretended, "run", late)
    report = run(store, faulty, 16, 32)

    assert (report.interrupted, len(report.undecided), report.measured) == (True, 2, 3)
    assert len(store.measurements()) == 3  # what the end cut short is no measurement


def test_few_choices_serve_all_problems_within_a_stated_loss(pretended, store, faulty):
    report = run(store, faulty, 8, 32, 128)

    assert sum(len(each.problems) for each in report.buckets) == 3
    assert max(each.loss for each in report.buckets) <= 0.05


def test_the_table_serves_what_lies_between_by_the_bucket(pretended, store, faulty, tables):
    from tuner.search import tables as made

    report = run(store, faulty, 32, 64)
    made.update("cpu", report.decisions, 1, report.buckets)
    between = tuned.explain(faulty.FAULTY, faulty.problem(48))
    assert (between.why, between.choice, between.loss) == ("bucket", Choice.of("right", {"block": 16}), 0.0)

    made.update("cpu", run(store, faulty, 128).decisions, 1)  # without buckets: those that are there stay
    assert tuned.explain(faulty.FAULTY, faulty.problem(48)).why == "bucket"
    lock = tables.parent / "lock.json"
    made.lock("cpu", lock, "error")
    lock.write_text(lock.read_text().replace('"loss": 0.0', '"loss": 0.5'))
    with pytest.raises(ValueError, match="was changed after it was locked"):
        table.read(lock)


def test_sessions_that_write_at_once_lose_no_entry(tables, monkeypatch):
    """A lock belongs to an open file, so threads exclude each other as processes do."""
    from tuner.search import tables as made

    monkeypatch.setattr(made, "_current", lambda entry: True)

    def session(number):
        for rows in range(3):
            problem = Problem("x", "cpu", "float32", (("rows", 10 * number + rows),))
            made.change("cpu", 1, [table.Entry(problem, Choice.of("y"), 1.0, "z")])

    threads = [threading.Thread(target=session, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    (path,) = tables.glob("*.json")
    assert len(table.read(path).entries) == 24


def test_what_was_measured_elsewhere_is_adopted_when_it_is_sound(pretended, store, faulty, tables):
    from tuner.search import tables as made

    path, _ = made.update("cpu", run(store, faulty, 16).decisions, 1)
    path.write_text(path.read_text().replace(fingerprint().key, "elsewhere"))
    tuned.use("cpu", None)
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "default"

    (entry,) = tuned.table("cpu").entries.values()
    timed = Outcome(Kind.TIMED, (1.0,) * 7)
    wrong = [made.Verified(entry, Outcome(Kind.WRONG), None)]
    assert made.adopt("cpu", wrong, 1) == 0
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "default"
    assert made.adopt("cpu", [made.Verified(entry, timed, None)], 1) == 1
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "near"
    made.update("cpu", run(store, faulty, 16).decisions, 1)
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "exact"


def test_fewer_threads_are_a_candidate_on_a_cpu(faulty):
    choice, problem = Choice.of("right", {"block": 8}), faulty.problem(8)
    one = candidates.on_one_thread(choice, problem, 2)

    assert dict(one.configuration)[THREADS] == 1
    faulty.FAULTY.check(one, problem)
    assert candidates.on_one_thread(one, problem, 2) is None
    assert candidates.on_one_thread(choice, problem, 1) is None


def test_a_session_runs_with_real_children(tmp_path, store, faulty, patience, root):
    """Crashes, hangs and wrong answers among the candidates: each is a row, and what serves is right."""
    report = run(store, faulty, patience=patience, load=[str(root / "tests/tuner/faulty_operation.py")])
    (decision,) = report.decisions
    failures = {row.implementation: row.failure for row in store.measurements() if row.failure}

    assert decision.choice.implementation in ("right", "small")
    assert failures["crashes"] == failures["raises"] == "crashed"
    assert (failures["hangs"], failures["wrong"], failures["without_gradients"]) == ("timed_out", "wrong", "refused")


def test_decisions_become_the_table_that_serves(pretended, store, faulty, tables):
    from tuner.search import tables as made

    report = run(store, faulty)
    path, count = made.update("cpu", report.decisions, 1)
    served = tuned.explain(faulty.FAULTY, faulty.problem(32))

    assert (path.parent, count) == (tables, 1)
    assert (served.why, served.choice) == ("exact", Choice.of("right", {"block": 16}))


def test_a_table_keeps_what_it_held_and_a_lock_notices_a_change(pretended, store, faulty, tables, tmp_path):
    from tuner.search import tables as made

    made.update("cpu", run(store, faulty, 16).decisions, 1)
    _, count = made.update("cpu", run(store, faulty, 32).decisions, 1)
    assert count == 2

    lock = tmp_path / "lock.json"
    assert made.lock("cpu", lock, "error") == 2
    assert len(table.read(lock).entries) == 2
    lock.write_text(lock.read_text().replace('"block": 16', '"block": 4'))
    with pytest.raises(ValueError, match="was changed after it was locked"):
        table.read(lock)
    with pytest.raises(ValueError, match="miss must be one of"):
        made.lock("cpu", lock, "never")


def test_measurements_travel_as_a_file_and_arrive_once(pretended, store, faulty, tmp_path):
    run(store, faulty)
    path = tmp_path / "measurements.jsonl.gz"
    count = exchange.export(store, path)
    pytest.importorskip("sqlalchemy")
    from nas.store import open_store

    with open_store(tmp_path / "other.db") as other:
        assert exchange.import_(other, path) == count
        assert exchange.import_(other, path) == 0
        assert other.measurements() == store.measurements()
        assert run(other, faulty).measured == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 0: is empty"),
        ('{"format": "another"}\n', "line 1: does not begin with the format"),
        ('{"format": "tessera measurements 1"}\n{"operation": "x"}\n', "line 2"),
        ("no json\n", "line 1"),
    ],
)
def test_a_file_that_holds_no_measurements_is_refused_with_its_line(text, says, store, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        exchange.import_(store, path)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"effort": "huge"}, "effort must be one of none, quick, full"), ({"device": "tpu"}, "must be 'cpu'")],
)
def test_rejects_what_it_does_not_know(options, says, store, faulty):
    with pytest.raises(ValueError, match=says):
        run(store, faulty, **options)


def test_a_comparison_by_a_former_release_of_the_same_code_still_decides(pretended, store, faulty, monkeypatch):
    monkeypatch.setattr(Implementation, "source", property(lambda self: f"old {self.name}"))
    first = run(store, faulty)
    former = {name: {f"old {name}": f"new {name}"} for name in faulty.FAULTY.implementations}
    monkeypatch.setattr(Implementation, "source", property(lambda self: f"new {self.name}"))
    monkeypatch.setattr("kernels.dispatch.sources.former_sources", lambda: {"faulty": former})
    sources._former.cache_clear()

    assert (run(store, faulty).measured, run(store, faulty).decisions) == (0, first.decisions)
    sources._former.cache_clear()
