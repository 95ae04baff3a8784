"""What was measured is found again in the database, as long as it is still what would be measured."""

import itertools
import shutil

import pytest

from kernels.dispatch import tuned
from kernels.dispatch.registry import Choice, operation
from kernels.dispatch.table import Entry as Tuned
from kernels.dispatch.table import Table as TunedTable
from nas.latency import bench, evidence, runs, served, stored, table, timing
from nas.latency.measured import latency
from nas.latency.predicted import Predictor
from nas.latency.runs import Setting
from nas.latency.table import Entry, Table
from nas.store import open_store
from searchspace.model.architecture import Architecture
from tuner.measure import core
from tuner.search.results import Results, copied

SETTING = Setting(phase="prefill", length=8)
MODEL = Architecture.parse(
    "{kind: decoder, width: 16, vocabulary: 11, body: {repeat: {times: 3, of: [residual: {of: attention}]}}}"
)
QUIET = 0.05  # milliseconds of the gauge: less than it takes here, so this machine is loaded


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A database in which MODEL and its pieces are."""
    path = tmp_path_factory.mktemp("latency") / "nas.db"
    with pytest.MonkeyPatch.context() as patch, open_store(path) as store:
        patch.setattr(table, "quiet_gauge", lambda *_: QUIET)
        predictor = Predictor(Table(store), SETTING)
        predictor.measured(MODEL)
        predictor.sum(MODEL)
    return path


@pytest.fixture(autouse=True)
def always_as_quiet(monkeypatch):
    monkeypatch.setattr(table, "quiet_gauge", lambda *_: QUIET)


@pytest.fixture
def store(measured, tmp_path):
    with open_store(shutil.copy(measured, tmp_path / "nas.db")) as store:
        yield store


@pytest.fixture
def known(store):
    """A table in which MODEL and its pieces are."""
    return Predictor(Table(store), SETTING)


def unmeasured(*_, **__):
    raise AssertionError("measured again")


def test_a_check_stores_its_sums_once_next_to_what_was_measured(store):
    for _ in range(2):
        Predictor(Table(store), SETTING).check([MODEL], 1)
    (both,) = stored.compared(store.measurements(stored.MODEL), store.measurements(stored.SUM))

    assert len(store.measurements(stored.SUM)) == 1
    assert both.architecture == MODEL.hash
    assert both.sum == Predictor(Table(store), SETTING).sum(MODEL).milliseconds


def test_a_new_process_measures_nothing_again(known, store, monkeypatch):
    monkeypatch.setattr("nas.latency.timing.timed", unmeasured)
    monkeypatch.setattr("nas.latency.predicted.latency", unmeasured)
    again = Predictor(Table(store), SETTING)

    assert again.measured(MODEL) == known.measured(MODEL)
    assert again.sum(MODEL) == known.sum(MODEL)
    assert again.table.piece("another") is None


@pytest.mark.parametrize("change", ["phase", "length", "batch", "threads"])
def test_another_setting_is_another_measurement(known, change):
    other = {"phase": "train", "length": 9, "batch": 2, "threads": 2}
    setting = Setting(**{"phase": "prefill", "length": 8, change: other[change]})
    assert known.table.model(MODEL.hash, setting) is None


def test_changed_code_makes_a_measurement_void(known, store, monkeypatch):
    monkeypatch.setattr(table, "code", lambda: "other")
    assert Table(store).model(MODEL.hash, SETTING) is None


def test_a_retuned_kernel_makes_void_what_it_served_and_nothing_else(known, store):
    entry = known.table.model(MODEL.hash, SETTING)
    row = next(row for row in entry.served if row["operation"] == "layer_norm")
    norm = operation("layer_norm")
    sizes, flags = (
        tuple(row[kind][name] for name in names) for kind, names in (("sizes", norm.sizes), ("flags", norm.flags))
    )
    problem = norm.problem("cpu", row["dtype"], sizes, flags)
    other = next(
        each for name, each in norm.implementations.items() if name != norm.default_choice(problem).implementation
    )
    tuned.use("cpu", TunedTable([Tuned(problem, Choice.of(other.name, other.default), 1.0, other.source)]))
    try:
        assert not served.still([row])
        assert Table(store).model(MODEL.hash, SETTING) is None
        assert served.still(each for each in entry.served if each != row)
    finally:
        tuned.use("cpu", None)
    assert Table(store).model(MODEL.hash, SETTING) == entry


def test_the_gauge_remembers_the_quietest_time(tmp_path, monkeypatch):
    store = open_store(tmp_path / "gauge.db")
    times = iter([2.0, 1.0, 3.0])
    monkeypatch.setattr(table, "quiet_gauge", lambda *_: next(times))

    assert [Table(store).quiet for _ in range(3)] == [2.0, 1.0, 1.0]
    assert Table(store).remembered == 1.0
    store.close()


def test_times_of_another_quiet_moment_are_scaled_to_the_quietest(tmp_path, monkeypatch):
    store = open_store(tmp_path / "gauge.db")
    times = itertools.chain([2.0], itertools.repeat(1.0))
    monkeypatch.setattr(table, "quiet_gauge", lambda *_: next(times))
    Table(store).keep_pieces({"{}": Entry(4.0, 3.0, 5.0, (), {"repeated": 2.0})})
    found = Table(store).piece("{}")

    assert (found.milliseconds, found.low, found.high, found.repeated) == (2.0, 1.5, 2.5, 1.0)
    assert Table(store).piece("{}") == found
    store.close()


def test_what_was_quiet_then_is_a_load_if_a_quieter_moment_is_known(known, store, monkeypatch):
    before = known.table.model(MODEL.hash, SETTING)
    monkeypatch.setattr(table, "quiet_gauge", lambda *_: QUIET / 2)
    after = Table(store).model(MODEL.hash, SETTING)

    assert after.milliseconds == pytest.approx(before.milliseconds / 2)
    assert after.tokens_per_second == pytest.approx(2 * before.tokens_per_second)
    assert after.load == pytest.approx(2 * before.load)
    assert after.high >= before.milliseconds, "the interval covers the time without the correction"


def test_says_what_served_each_problem_once(known):
    found = latency(MODEL.configured, SETTING, repeats=1)

    assert {row["operation"] for row in evidence.rows_of(found.served)} == {"attention", "layer_norm"}
    assert served.together(found.served, found.served) == found.served


def test_pieces_are_carried_to_another_database_like_tuning_measurements(store, tmp_path, monkeypatch):
    expected = Predictor(Table(store), SETTING).sum(MODEL).milliseconds

    def unmeasured(*_, **__):
        raise AssertionError("a piece was measured again")

    monkeypatch.setattr("nas.latency.timing.timed", unmeasured)
    with open_store(tmp_path / "other.db") as other:
        assert copied(Results(store), Results(other)) > 0
        assert copied(Results(store), Results(other)) == 0
        assert Predictor(Table(other), SETTING).sum(MODEL).milliseconds == expected


@pytest.mark.parametrize("part", [timing.timed, bench.run, runs.run, latency, Predictor, core.one_core])
def test_what_times_a_model_counts(part):
    assert part.__module__ in table.RUNS
