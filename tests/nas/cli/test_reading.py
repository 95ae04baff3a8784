"""nas status, best and show: what a study holds, from its database alone."""

import shutil
import sqlite3

import pytest

from nas.numbers import FIRST_FINAL
from nas.store import open_store


def test_the_status_of_a_study_long_after(study, nas):
    ended = nas("status", "tiny")

    assert ended.code == 0
    for piece in ("state     ended", "4 of 4", "best      trial", "pareto"):
        assert piece in ended.out


def test_the_status_from_another_folder(finished, nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    by_option = nas("status", "tiny", "--storage", finished.storage, "--json").json()
    monkeypatch.setenv("NAS_STORAGE", f"sqlite:///{finished.storage}")
    by_environment = nas("status", "tiny", "--json").json()

    assert by_option == by_environment
    assert sum(by_option["trials"].values()) == 4
    assert by_option["phase"] == "ended"


@pytest.mark.parametrize("reference", ["tiny", "tiny:x"])
def test_a_study_in_place_of_an_architecture(study, nas, reference):
    ended = nas("show", reference)

    assert ended.code == 2
    assert "'tiny' is a study. An architecture of it is written tiny:NUMBER" in ended.err


def test_a_search_file_in_place_of_a_study(tmp_path, monkeypatch, nas):
    (tmp_path / "search.yaml").touch()
    monkeypatch.chdir(tmp_path)

    assert "search.yaml is a file. Give the name of the study" in nas("best", "search.yaml").err


def test_the_status_needs_no_write_to_the_database(finished, nas, tmp_path):
    copy = shutil.copy(finished.storage, tmp_path / "copy.db")
    before = (tmp_path / "copy.db").read_bytes()

    nas("status", "tiny", "--storage", copy)

    assert (tmp_path / "copy.db").read_bytes() == before


def test_nothing_in_a_database_steers_the_terminal(finished, nas, tmp_path):
    copy = shutil.copy(finished.storage, tmp_path / "copy.db")
    signs = "\x1b\x9b\u202e\x07"
    steering = f"[2J{signs}"
    with sqlite3.connect(copy) as connection:
        failed = "state = 'failed', error_kind = 'task error', error_text = ?"
        connection.execute(f"UPDATE trial SET {failed} WHERE number = 0", [steering])
        connection.execute("UPDATE metric SET name = name || ?", [steering])
        connection.execute("UPDATE trial SET operator = operator || ?", [steering])
    connection.close()

    of_study = ("status", "best", "table", "replay")
    for words in (["show", "tiny:0"], ["status"], *([each, "tiny"] for each in of_study)):
        for more in ([], ["--json"]):
            ended = nas(*words, *more, "--storage", copy)
            assert ended.code == 0
            assert not {*signs} & {*ended.out, *ended.err}


def test_the_best_of_the_highest_rung_come_first(study, nas):
    rows = nas("best", "tiny", "--json").json()

    assert len(rows) == 4
    ranks = [(-row["rung"], row["bits_per_byte"]) for row in rows]
    assert ranks == sorted(ranks)
    assert {row["rung"] for row in rows} == {0, 1}


def test_the_best_by_another_objective_and_a_limit(study, nas):
    (row,) = nas("best", "tiny", "--objective", "flops", "--limit", "1", "--json").json()
    top = [each for each in nas("best", "tiny", "--json").json() if each["rung"] == 1]

    assert row["flops"] == min(each["flops"] for each in top)


def test_the_front_is_of_the_highest_rung_alone(study, nas):
    rows = nas("best", "tiny", "--pareto", "--json").json()

    assert rows
    assert {row["rung"] for row in rows} == {1}


def test_a_table_has_a_line_a_trial(study, nas):
    head, *lines = nas("best", "tiny").out.splitlines()

    assert head.split() == ["trial", "bits_per_byte", "flops", "rung", "state", "architecture", "note"]
    assert len(lines) == 4
    assert [line.split()[0] for line in lines if line.endswith("baseline")] == ["0"]


def test_a_row_says_whether_it_is_a_baseline(study, nas):
    rows = nas("best", "tiny", "--json").json()

    assert {row["trial"]: row["baseline"] for row in rows} == {0: True, 1: False, 2: False, 3: False}
    assert {row["arm"] for row in rows} == {"main"}


def test_the_finals_are_numbered_on_their_own(study, nas):
    shown = nas("show", "tiny:final-1", "--json").json()["trial"]

    assert (shown["trial"], shown["final"], shown["purpose"]) == (FIRST_FINAL, 1, "final")
    assert "tiny final 1: complete; finalist of trial " in nas("show", "tiny:final-1").err
    assert "final 1 (seed " in study.ended.err
    assert nas("show", f"tiny:{FIRST_FINAL}").out == nas("show", "tiny:final-1").out
    assert "No trial 4 in this study: the last one is 3." in nas("show", "tiny:4").err


def test_a_final_that_does_not_exist_is_refused_with_how_many_there_are(study, nas):
    count = nas("status", "--json").json()[0]["finals"]
    for words in (["show"], ["export", "-o", "-"], ["profile"], ["eval"], ["show", "tiny:1"]):
        ended = nas(*words, f"tiny:final-{count + 1}")
        assert ended.code != 0
        assert f"No final {count + 1} in this study: it has {count} finals." in ended.err
    assert nas("show", "tiny:final-0").code == 2


def test_no_text_shows_the_number_that_a_final_has_in_the_database(study, nas):
    told = nas("show", "tiny:0", "tiny:final-2"), nas("export", "tiny", "--best", "-o", "-"), nas("status", "tiny")
    curves = nas("table", "tiny", "--curves", "--all")
    for ended in (*told, curves, nas("export", "tiny:final-2", "-o", "-"), nas("verdict", "tiny")):
        assert str(FIRST_FINAL)[:6] not in ended.out + ended.err
    assert [line[:7] for line in curves.out.splitlines()[5:7]] == ["final 1", "final 2"]
    lines = nas("table", "tiny", "--curves", "--trial", "final-2", "--trial", "0", "--json").json()
    assert [(line["trial"], line["final"]) for line in lines] == [(FIRST_FINAL + 1, 2), (0, None)]
    assert "is written as its number, or as final-2, but got '-1'" in nas("table", "tiny", "--curves", "--trial=-1").err


def test_the_status_says_the_verdict(study, nas):
    found = nas("status", "tiny", "--json").json()["verdict"]

    assert found["sentence"] == nas("search", "tiny.yaml", "--quiet", "--json").json()["finals"]["sentence"]
    assert found["is_current"]
    assert f"verdict   {found['sentence'].removeprefix('Verdict: ')}" in nas("status", "tiny").out


def test_an_architecture_is_shown_alike_from_its_trial_its_hash_and_its_file(study, nas, tmp_path):
    trial = nas("show", "tiny:0", "--json").json()
    (tmp_path / "same.yaml").write_text(trial["architecture"])

    by_file = nas("show", str(tmp_path / "same.yaml"), "--length", "16", "--json").json()
    by_hash = nas("show", f"tiny:{trial['hash'][:12]}", "--length", "16", "--json").json()

    assert by_file["hash"] == by_hash["hash"] == trial["hash"]
    assert by_file["cost"] == trial["cost"]  # a trial is shown at the length of its task
    assert trial["trial"]["operator"] == "baseline"
    assert trial["trial"]["rungs"][0]["rung"] == 0


def test_a_tree_is_drawn_on_stdout(study, nas):
    ended = nas("show", "transformer_modern:small", "--length", "32")

    assert "1 x 32 x 256" in ended.out
    assert ended.err == ""


def test_two_trials_are_compared_by_structure_scores_and_costs(study, nas):
    found = nas("show", "tiny:0", "tiny:1", "--json").json()

    assert found["differences"]
    assert found["length"] == 16
    assert {"bits_per_byte", "flops", "rung"} <= {row["score"] for row in found["scores"]}
    assert "parameters" in {row["cost"] for row in found["costs"]}
    text = nas("show", "tiny:0", "tiny:1").out
    assert "cost at length 16" in text


def test_no_word_is_broken_however_narrow_the_terminal(nas, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = nas("show", "transformer_xl:tiny", "primer:tiny", "universal_transformer:tiny").out
    words = set(text.split())

    assert {"[relative_", "attention", "activation=", "share_biases=", "sinusoidal", "residual"} <= words
    assert max(map(len, text.splitlines())) <= 60
    monkeypatch.setenv("COLUMNS", "70")
    assert "relative_attention" in nas("show", "transformer_xl:tiny", "primer:tiny").out.replace("\n", "")


def test_layers_are_compared_side_by_side_within_the_width_of_the_terminal(study, nas, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    names = ("tiny:0", "transformer_modern:small", "ut.yaml")
    (study.folder / "ut.yaml").write_text(nas("zoo", "universal_transformer", "--size", "tiny").out)
    text = nas("show", *names, "--length", "32")
    lines = text.out.splitlines()

    assert max(map(len, lines)) <= 110
    assert all(name in lines[0] for name in names)
    (width,) = [line for line in lines if line[3:].startswith("width")]
    assert width.split() == ["*", "width", "16", "256", "64"]
    assert any(line.startswith("   kind ") for line in lines)
    assert any(line[3:].startswith("FLOPs, every step") for line in lines)
    assert "ut.yaml: FLOPs count 2 of 3 steps" in text.err
    assert max(map(len, text.err.splitlines())) <= 110
    assert "transformer_modern:small: FLOPs" not in text.err

    found = nas("show", *names, "--length", "32", "--json").json()
    assert [each["name"] for each in found["architectures"]] == list(names)
    assert {"place": "width", "texts": ["16", "256", "64"], "differs": True} in found["layers"]
    assert all(len(row["values"]) == 3 for row in found["costs"])


HALTING_SPACE = """\
kind: decoder
width: 16
vocabulary: 256
body: {halting: {times: 6, of: [{attention: {heads: 2}}, {feed_forward: {expand: !choice [2, 3]}}]}}
"""


def test_the_flops_of_a_halting_trial_are_the_same_number_everywhere(files, nas):
    import nas as package

    (files / "space.yaml").write_text(HALTING_SPACE)
    (files / "tiny.yaml").write_text((files / "tiny.yaml").read_text().replace("baselines: [baseline.yaml]\n", ""))
    with package.open_study("runs/tiny.db", "tiny", "tiny.yaml") as study:
        for _ in range(3):  # a random space has two points, and the better one gets a second rung
            for trial in study.ask(1):
                study.tell(trial, {"bits_per_byte": 3.0, "halting_steps": 3.25})
    (best,) = nas("best", "tiny", "--limit", "1", "--json").json()
    shown = nas("show", "tiny:0", "--json").json()
    compared = nas("show", "tiny:0", "tiny:0", "--json").json()
    (files / "same.yaml").write_text(shown["architecture"])
    untrained = nas("show", "same.yaml", "--length", "16", "--json").json()

    assert best["flops"] == shown["cost"]["flops"]
    assert {"cost": "flops", "first": best["flops"], "second": best["flops"], "values": [best["flops"]] * 2} in (
        compared["costs"]
    )
    assert "3.25 of 6 steps" in shown["halting"] and "3.25 of 6 steps" in nas("show", "tiny:0").out
    (export,) = nas("export", "tiny", "--trial", "0", "--json").json()["files"]
    assert nas("show", export, "--json").json()["cost"]["flops"] == best["flops"]
    assert "3.25 of 6 steps" in nas("show", export).out
    assert "2 of 6 steps" in untrained["halting"]
    assert untrained["cost"]["flops"] < best["flops"] < shown["cost"]["maximum_flops"]


def test_heads_are_always_shown_and_other_defaults_on_demand(nas, files):
    (files / "one.yaml").write_text("kind: decoder\nwidth: 16\nvocabulary: 11\nbody: attention\n")

    assert "attention heads=4 " in nas("show", "one.yaml").out
    assert "dropout" not in nas("show", "one.yaml").out
    assert "attention heads=4 key_value_heads=null over=self" in nas("show", "one.yaml", "--defaults").out
    assert "dropout: 0.0" in nas("show", "one.yaml", "--defaults", "--json").json()["architecture"]


def test_a_space_in_place_of_an_architecture_gets_one_sentence(nas, files):
    (files / "space.yaml").write_text(
        "kind: decoder\nwidth: !choice [8, 16]\nvocabulary: 11\nbody: !choice [gru, lstm]\n"
    )
    ended = nas("show", "space.yaml")

    assert ended.code == 2
    assert ended.err == (
        "error: space.yaml is a space, not an architecture: `nas space space.yaml` prints it, and "
        "`nas space space.yaml -n 1` draws architectures from it.\n"
    )


def test_an_architecture_is_like_itself(nas):
    ended = nas("show", "transformer_modern", "transformer_modern")

    assert ended.code == 0
    assert "same architecture" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["status", "tinny"], 3, "Did you mean 'tiny'?"),
        (["best", "tiny", "--storage", "gone.db"], 3, "no study database gone.db"),
        (["status", "tinny", "--storage", "runs/tiny.db"], 2, "tiny"),
        (["status", "tiny", "--storage", "text.txt"], 3, "not a database"),
        (["status", "tiny", "--storage", "mysql://host/x"], 3, "mysql"),
        (["best", "tiny", "--objective", "flop"], 2, "Did you mean 'flops'?"),
        (["show", "tiny:99"], 2, "No trial 99"),
        (["show", "tiny:ffffffff"], 2, "ffffffff"),
        (["show", "transformer_moder"], 2, "Did you mean 'transformer_modern'?"),
        (["show", "spaec.yaml"], 2, "Did you mean 'space.yaml'?"),
        (["show", "space.yaml"], 2, "space.yaml is a space"),
        (["show", "text.txt"], 2, "text.txt"),
        (["show", "runs"], 2, "is a folder"),
        (["show", "tiny:0", "tiny:99"], 2, "No trial 99"),
    ],
)
def test_mistakes_are_told_with_the_nearest_right_name(arguments, code, said, study, nas):
    ended = nas(*arguments)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_a_study_that_has_only_begun_has_empty_tables(files, nas):
    import nas as package

    package.open_study("runs/tiny.db", "tiny", "tiny.yaml").close()

    assert nas("best", "tiny", "--json").json() == []
    assert nas("best", "tiny", "--pareto").err == "No trial has finished yet.\n"
    assert "state     not started" in nas("status", "tiny").out
    exported = nas("export", "tiny", "--best")
    assert (exported.code, exported.out) == (1, "")


def test_failures_are_counted_by_their_reason(files, nas):
    import nas as package

    with package.open_study("runs/tiny.db", "tiny", "tiny.yaml") as study:
        study.tell(study.ask()[0], failure="Traceback ...\nZeroDivisionError: division by zero")

    assert "failed    task error: 1 (trial 0)" in nas("status", "tiny").out
    shown = nas("show", "tiny:0")
    assert "task error: ZeroDivisionError: division by zero" in shown.err
    with open_store("runs/tiny.db", create=False) as store:
        assert store.trial(store.study("tiny").id, 0).state == "failed"


def test_a_picture_of_an_architecture_is_written_whole(nas, tmp_path):
    path = tmp_path / "picture.svg"
    ended = nas("show", "transformer_modern:small", "--length", "32", "--svg", str(path))
    assert (ended.code, ended.out) == (0, "")
    assert path.read_text().startswith("<svg ")
    assert nas("show", "transformer_modern", "--svg", str(tmp_path / "no" / "picture.svg")).code == 1
