"""nas status, nas table, nas delete, and --set."""

import csv
import importlib.util
import io
import time

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

import nas as package
from nas import doctor


def test_studies_lists_every_database_of_the_default_folder(study, nas, tmp_path, monkeypatch):
    (row,) = nas("status", "--json").json()

    assert (row["study"], row["trials"], row["state"]) == ("tiny", 4, "ended")
    assert nas("status", "--storage", study.storage, "--json").json()[0]["study"] == "tiny"
    monkeypatch.chdir(tmp_path)
    assert "no study yet" in nas("status").err


def test_curves_shows_the_losses_of_the_training(study, nas):
    best = nas("best", "tiny", "--limit", "1", "--json").json()[0]["trial"]
    (shown,) = nas("table", "tiny", "--curves", "--trial", best, "--json").json()
    every = nas("table", "tiny", "--curves", "--all", "--json").json()

    assert shown["trial"] == best
    assert [step for step, _ in shown["curve"]] == [1, 2]
    assert {each["trial"] for each in every} >= {0, 1, 2, 3}
    assert "training loss" in nas("table", "tiny", "--curves", "--trial", best).out


def test_a_table_has_a_row_for_every_trial(study, nas, tmp_path):
    rows = list(csv.DictReader(io.StringIO(nas("table", "tiny").out)))
    assert nas("table", "tiny", "-o", tmp_path / "trials.csv").code == 0
    best = nas("best", "tiny", "--limit", "1", "--json").json()[0]
    found = next(row for row in rows if int(row["trial"]) == best["trial"])

    assert (tmp_path / "trials.csv").read_text() == nas("table", "tiny").out
    assert len(rows) == 8  # four of the search, four of the finals
    assert float(found["objective/bits_per_byte"]) == pytest.approx(best["bits_per_byte"])
    assert "metric/loss" in found
    assert found["architecture"].startswith("kind: decoder")
    assert {found["choice/width"] for found in rows if found["operator"] == "random"} <= {"16", "32"}
    assert nas("table", "tiny", "-o", "trials.xlsx").code == 2


def test_a_table_asks_the_database_once_for_all_trials(study, nas):
    asked = []

    def listen(connection, cursor, statement, *more):
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", listen)
    try:
        assert len(nas("table", "tiny", "--json").json()) == 8
    finally:
        event.remove(Engine, "before_cursor_execute", listen)
    assert len(asked) < 12, "more than one for each trial"


def test_a_table_is_json_too(study, nas, tmp_path):
    rows = nas("table", "tiny", "--json").json()
    finals = [row["final"] for row in rows if row["purpose"] == "final"]
    assert [row["trial"] for row in rows if row["final"] is None] == [0, 1, 2, 3] and rows[0]["architecture"]
    assert finals == list(range(1, len(rows) - 3))
    written = nas("table", "tiny", "-o", str(tmp_path / "trials.csv"), "--json").json()
    assert written == {"file": str(tmp_path / "trials.csv"), "trials": len(rows)}


def test_a_table_says_what_the_other_commands_say_of_a_trial_that_has_not_ended(files, nas):
    with package.open_study("runs/tiny.db", "tiny", "tiny.yaml") as study:
        study.ask(lease_seconds=0.01)
    time.sleep(0.05)
    told = nas("show", "tiny:0", "--json").json()["trial"]
    (row,) = nas("table", "tiny", "--json").json()
    assert nas("status", "--json").json()[0]["state"] == nas("status", "tiny", "--json").json()["activity"]
    assert (row["state"], row["activity"]) == (told["state"], told["activity"]) == ("running", "interrupted")


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_a_choice_between_values_of_several_types_is_text_in_parquet():
    from nas.cli.study.table import _column

    assert _column([True, 4, None, "a"]).to_pylist() == ["True", "4", None, "a"]
    assert _column([1, 2.5, None]).to_pylist() == [1.0, 2.5, None]


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_parquet_has_the_same_rows(study, nas, tmp_path):
    from pyarrow import parquet

    nas("table", "tiny", "-o", tmp_path / "trials.parquet")
    table = parquet.read_table(tmp_path / "trials.parquet")
    rows = list(csv.DictReader(io.StringIO(nas("table", "tiny").out)))

    assert table.column_names == list(rows[0])
    assert table["trial"].to_pylist() == [int(row["trial"]) for row in rows]


def test_set_changes_values_of_the_search_file(files, nas):
    changes = ["--set", "budget.trials=1", "--set", "finals={top: 0}", "--set", "study=other"]
    ended = nas("search", "tiny.yaml", *changes, "--quiet", "--json")

    assert ended.code == 0
    (row,) = nas("status", "--json").json()
    assert (row["study"], row["trials"]) == ("other", 1)
    items = ["--set", "objectives.1=parameters", "--set", "space={kind: decoder, width: 8, body: [attention]}"]
    items += ["--set", "space.body.0={attention: {heads: 2}}", "--set", "control=null", "--set", "study=more"]
    plan = nas("plan", "tiny.yaml", *items, "--set", "budget.trials=7", "--json").json()
    assert plan["budget"] == {"trials": 7}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("budget.trials", "KEY=VALUE"),
        ("strategy.population=4", "is not a mapping"),
        ("budget.trails=3", "trails"),
        ("budget.trials=", "has no value"),
        ("budget=null", "must be a mapping, but found None"),
        ("budget.trials=abc", "found the text 'abc'."),
        ("objectives=flops", "must be a list, but found 'flops'"),
        ("objectives.two=flops", "a list, whose items are 0 to 1"),
        ("nothing=1", "nothing"),
    ],
)
def test_a_wrong_change_is_told(change, said, files, nas):
    ended = nas("plan", "tiny.yaml", "--set", change)

    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_delete_removes_one_study_with_its_checkpoints_and_leaves_the_others(files, nas, monkeypatch):
    monkeypatch.delitem(doctor.CHECKS, "ray")  # it would start Ray for seconds
    for name in ("one", "two"):
        changes = ["--set", "budget.trials=1", "--set", "finals={top: 0}", "--set", f"study={name}"]
        assert nas("search", "tiny.yaml", *changes, "--storage", "both.db", "--quiet", "--json").code == 0
    kept = list((files / "runs/two").rglob("*.pt"))
    ended = nas("delete", "one", "--storage", "both.db", "--yes", "--json")

    assert ended.json() == {"study": "one", "trials": 1, "checkpoints": ended.json()["checkpoints"]}
    assert not list((files / "runs/one").rglob("*.pt"))
    assert list((files / "runs/two").rglob("*.pt")) == kept != []
    assert [row["study"] for row in nas("status", "--storage", "both.db", "--json").json()] == ["two"]
    assert nas("best", "two", "--storage", "both.db", "--json").json()
    assert nas("doctor", "--storage", "both.db").code in (0, 1)
    assert nas("delete", "one", "--storage", "both.db", "--yes").code == 2


def test_a_text_that_a_spreadsheet_would_run_is_marked():
    from nas.cli.study.table import _csv

    rows = [{"=name": "=1+1", "number": -2.5, "plain": "a"}]
    assert _csv(rows, list(rows[0])) == "'=name,number,plain\n'=1+1,-2.5,a\n"


def test_delete_leaves_checkpoints_of_other_studies_and_other_files(files, nas):
    import sqlite3

    for name in ("one", "two"):
        changes = ["--set", "budget.trials=1", "--set", "finals={top: 0}", "--set", f"study={name}"]
        assert nas("search", "tiny.yaml", *changes, "--storage", "both.db", "--quiet", "--json").code == 0
    kept = list((files / "runs/two").rglob("*.pt"))
    for copy in (files / "copy.db", files / "elsewhere" / "copy.db"):
        copy.parent.mkdir(exist_ok=True)
        assert nas("backup", "both.db", copy).code == 0
        assert nas("delete", "two", "--storage", copy, "--yes", "--json").json()["checkpoints"] == 0
    assert list((files / "runs/two").rglob("*.pt")) == kept, "the original names them"
    (files / "letter.txt").write_text("Dear reader")
    with sqlite3.connect(files / "both.db") as database:
        ids = "select id from study where name = ?"
        shared = f"select checkpoint_uri from unit where checkpoint_uri is not null and study_id = ({ids})"
        (uri,) = database.execute(f"{shared} limit 1", ["two"]).fetchone()
        one = [row for (row,) in database.execute(f"select id from unit where study_id = ({ids})", ["one"])]
        database.execute(
            "update unit set checkpoint_uri = ? where id = ? and checkpoint_uri is not null", [uri, one[0]]
        )
        database.execute(
            "update unit set checkpoint_uri = ? where id = ? and checkpoint_uri is not null",
            [str(files / "letter.txt"), one[-1]],
        )

    assert nas("delete", "one", "--storage", "both.db", "--yes").code == 0
    assert (files / "letter.txt").exists()
    assert list((files / "runs/two").rglob("*.pt")) == kept != []
