"""Measurements are kept in a database or in memory, and a place that fails says so in one way."""

import sqlite3
import time
from contextlib import closing

import pytest

from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice, Problem
from nas.store.records import Measurement
from tuner.outcome import Kind, Outcome
from tuner.search import results
from tuner.search.cache import Cache
from tuner.search.results import FILE, STORAGE, Results, StoreFailed, copied, results_at

DEVICE = fingerprint("cpu")
PROBLEM = Problem("scale", "cpu", "float32", (("rows", 4),))
OTHER = Problem("scale", "cpu", "bfloat16", (("rows", 4),))
ONE, TWO = Choice.of("triton", {"BLOCK": 16}), Choice.of("triton", {"BLOCK": 32})


@pytest.fixture(params=["a database", "memory"])
def kept(request, tmp_path):
    return Results(tmp_path / "folder" / "kept.db" if request.param == "a database" else None)


def cache(kept, source="code", device=DEVICE):
    return Cache(kept, "scale", device, lambda name: source)


def test_what_was_written_is_known_to_others_until_the_code_changes(kept):
    outcomes = {ONE: Outcome(Kind.TIMED, (1.0, 2.0, 3.0), resources={"registers": 8}), TWO: Outcome(Kind.WRONG)}
    cache(kept).write(PROBLEM, outcomes, "quick/signature")
    cache(kept).write(OTHER, {ONE: Outcome(Kind.TIMED, (9.0,))})

    again = cache(kept)
    assert {choice: known.outcome for choice, known in again.known(PROBLEM).items()} == outcomes
    assert again.known(PROBLEM)[ONE].milliseconds == 2.0
    assert again.compared(PROBLEM, "signature").keys() == outcomes.keys()
    assert again.compared(PROBLEM, "another") is again.compared(PROBLEM, "signature", "full") is None
    assert again.decided() == [PROBLEM]
    assert cache(kept, "changed").known(PROBLEM) == {}
    assert {row.device for row in kept.rows()} == set(kept.devices()) == {DEVICE.key}


def test_what_is_forgotten_is_not_known_any_more(kept):
    found = cache(kept)
    for problem in (PROBLEM, OTHER):
        found.write(problem, {ONE: Outcome(Kind.TIMED, (1.0,))})
    found.forget(PROBLEM)
    assert [len(each.known(problem)) for each in (found, cache(kept)) for problem in (PROBLEM, OTHER)] == [0, 1, 0, 1]
    found.write(PROBLEM, {TWO: Outcome(Kind.TIMED, (1.0,))})
    assert list(cache(kept).known(PROBLEM)) == [TWO]
    found.forget()
    assert [cache(kept).known(problem) for problem in (PROBLEM, OTHER)] == [{}, {}]


def test_only_what_is_new_is_copied(kept, tmp_path):
    cache(kept).write(PROBLEM, {ONE: Outcome(Kind.TIMED, (1.0,))})
    other = Results(tmp_path / "other.db")
    assert [copied(kept, other), copied(kept, other), copied(kept, other, "rms_norm")] == [1, 0, 0]
    assert copied(other, kept) == 0
    assert [row.milliseconds for row in other.rows("scale")] == [1.0]


def test_a_file_is_not_made_only_to_be_read(tmp_path):
    kept = Results(tmp_path / "kept.db")
    assert (kept.rows(), kept.devices()) == ([], {})
    assert not (tmp_path / "kept.db").exists()


def test_a_row_whose_configuration_cannot_be_read_is_left_out(tmp_path):
    kept = Results(tmp_path / "kept.db")
    about = {"operation": "scale", "problem": "{}", "dtype": "", "source": "code", "milliseconds": 1.0}
    for text in ("{", "[1]", '{"BLOCK": [1]}', '{"BLOCK": 16}'):
        kept.add(DEVICE.to_dict(), [Measurement(**about, implementation="triton", configuration=text)])
    assert [row.configuration for row in kept.rows()] == ['{"BLOCK": 16}']


def test_the_place_is_the_one_named_else_the_storage_else_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv(STORAGE, raising=False)
    assert results_at().where == tmp_path / "tessera" / FILE
    monkeypatch.setenv(STORAGE, "postgresql://host/db")
    assert results_at().where == "postgresql://host/db"
    assert results_at("own.db").where == "own.db"


def test_a_place_that_cannot_be_read_or_written_fails_with_its_reason(tmp_path):
    (tmp_path / "kept.db").write_text("no database at all, but a text of some length" * 9)
    for call in (lambda: Results(tmp_path / "kept.db").rows(), lambda: Results(tmp_path).devices()):
        with pytest.raises(StoreFailed, match="the stored results cannot be read: "):
            call()
    with pytest.raises(StoreFailed, match="the stored results cannot be written: "):
        Results(tmp_path / "kept.db").add(DEVICE.to_dict(), [])


def test_a_locked_database_is_waited_for_only_a_moment(tmp_path, monkeypatch):
    assert results.WAIT <= 3 and results.LATER_WAIT <= 10  # seconds
    monkeypatch.setattr(results, "LATER_WAIT", 0.05)
    kept = Results(tmp_path / "kept.db")
    cache(kept).write(PROBLEM, {ONE: Outcome(Kind.TIMED, (1.0,))})
    with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreFailed, match=r"locked by another process, for more than 0\.05 s"):
            cache(kept).write(PROBLEM, {TWO: Outcome(Kind.TIMED, (1.0,))})
    assert time.monotonic() - began < 20
