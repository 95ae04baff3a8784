"""nas plan, nas search and nas train."""

import re
import shlex
from pathlib import Path

import pytest

from nas.config.parts import Parts
from nas.runners.inline import InlineRunner
from nas.work import Failure, FailureKind, Outcome


def test_a_search_prints_its_result_on_stdout_and_its_progress_on_stderr(study):
    ended = study.ended

    assert ended.code == 0
    for piece in ("Pareto front", "The winner, trial", "Finals", "Verdict: "):
        assert piece in ended.out
        assert piece not in ended.err
    assert "trial 0 rung 0: bits_per_byte" in ended.err
    assert ended.err.startswith("Reading tiny.yaml and preparing its data\nBuilding the space")
    assert "`nas export tiny --best`" in ended.err


def test_a_search_that_is_over_says_the_same_again(study, nas):
    again = nas("search", "tiny.yaml", "--quiet")

    assert (again.code, again.err) == (0, "")
    assert again.out == study.ended.out


def test_a_study_that_is_named_is_resumed_with_its_stored_search_file(study, nas):
    Path("tiny").mkdir()  # is no search file
    again = nas("search", "tiny")
    Path("tiny").rmdir()

    assert again.err.startswith("The search file of study tiny comes from its database\n")
    assert again.out == study.ended.out


def test_the_result_as_json(study, nas):
    found = nas("search", "tiny.yaml", "--quiet", "--json").json()

    assert found["study"] == "tiny"
    assert found["pareto"]
    assert len(found["finals"]["entrants"]) == 2
    assert found["finals"]["sentence"].startswith("Verdict: ")


def test_a_search_is_repeated_with_other_seeds(study, nas, files):
    changes = ["--set", "study=again", "--set", "budget.trials=3", "--set", "finals.top=0"]
    found = nas("search", "tiny.yaml", "--repeat", "2", "--quiet", "--json", *changes).json()

    assert [each["study"] for each in found["repeats"]] == ["again", "again-seed1"]
    assert [each["seed"] for each in found["repeats"]] == [0, 1]
    assert found["sentences"][0].startswith("Over 2 seeds the best bits_per_byte has mean ")
    assert (files / "runs" / "again-seed1.db").exists()
    assert nas("status", "again-seed1").code == 0  # each repeat is a study like any other


def test_all_repeats_are_checked_before_the_first_begins(nas, files):
    (files / "runs").mkdir()
    (files / "runs" / "tiny-seed1.db").write_bytes(b"not a database")
    refused = nas("search", "tiny.yaml", "--repeat", "2")
    assert refused.code != 0 and "tiny-seed1.db is not a database" in refused.err
    assert not (files / "runs" / "tiny.db").exists()


def test_a_seed_that_finds_nothing_does_not_end_the_others(nas, files, monkeypatch):
    def first_seed_fails(work, progress=None):
        metrics = {"bits_per_byte": float(len(work.architecture) + work.seed)}
        failure = Failure(FailureKind.OUT_OF_MEMORY, "too large") if work.seed == 0 else None
        return Outcome(trial=work.trial, rung=work.rung, seconds=0.0, metrics=metrics, failure=failure)

    monkeypatch.setattr(Parts, "runner", lambda built, say: InlineRunner(first_seed_fails))
    changes = ["--set", "study=again", "--set", "budget.trials=3", "--set", "finals.top=0"]
    ended = nas("search", "tiny.yaml", "--repeat", "3", "--json", *changes)
    found = ended.json()
    found = ended.json()
    assert ended.code == 1 and "Trial 0, for one: out of memory: too large" in ended.err
    assert [each["seed"] for each in found["repeats"]] == [1, 2]
    assert found["without_result"] == ["The study 'again' has no result: every trial failed (3 out of memory)."]
    assert found["without_result"][0] in nas("search", "tiny.yaml", "--repeat", "3", "--quiet", *changes).out


def test_repeats_beyond_the_largest_seed_are_refused(nas, files):
    refused = nas("search", "tiny.yaml", "--repeat", "2", "--set", f"seed={2**53}")
    assert refused.code == 2 and "seed: 9007199254740992 leaves no 2 seeds" in refused.err


def test_a_plan_says_what_would_run_and_begins_nothing(files, nas):
    ended = nas("plan", "tiny.yaml")

    assert ended.code == 0
    for piece in (
        "tiny, new",
        "8 points",
        "language_model",
        "bits_per_byte",
        "4, of 1 step",
        "2 continue to 2",
        "4 units",
    ):
        assert piece in ended.out
    assert not (files / "runs").exists()


def test_a_plan_as_json_knows_a_study_that_is_there(study, nas):
    found = nas("plan", "tiny.yaml", "--json").json()

    assert "4 of 4 trials" in found["found"]
    assert found["points"] == 8
    assert found["forecast"]["units"] == [4, 2]
    assert found["milliseconds_a_step"] > 0


@pytest.mark.parametrize("command", ["plan", "search"])
def test_a_study_with_other_objectives_is_rejected_by_both_commands(command, study, nas):
    text = (study.folder / "tiny.yaml").read_text()
    changed = text.replace("objectives: [bits_per_byte", "objectives: [loss")
    assert changed != text
    (study.folder / "changed.yaml").write_text(changed)
    ended = nas(command, "changed.yaml")

    assert (ended.code, ended.out) == (2, "")
    assert "objectives was ['bits_per_byte'" in ended.err


@pytest.mark.parametrize("command", ["plan", "search"])
def test_an_objective_that_the_task_does_not_report_is_rejected_by_both_commands(command, files, nas):
    text = (files / "tiny.yaml").read_text()
    (files / "wrong.yaml").write_text(text.replace("bits_per_byte", "error").replace("study: tiny", "study: wrong"))
    ended = nas(command, "wrong.yaml")

    assert (ended.code, ended.out) == (2, "")
    assert "objectives[0]: the task language_model reports no metric 'error'" in ended.err
    assert not (files / "runs" / "wrong.db").exists()


def test_the_name_of_a_study_resumes_it(study, nas):
    again = nas("search", "tiny", "--quiet")
    assert (again.code, again.err) == (0, "")
    assert again.out == study.ended.out

    none = nas("search", "tinny")
    assert (none.code, none.out) == (2, "")
    assert "neither a search file 'tinny' nor a study" in none.err and "Did you mean 'tiny'?" in none.err


def test_a_space_in_place_of_a_search_file_is_explained(files, nas):
    (files / "space.yaml").write_text("kind: decoder\nwidth: !choice [8, 16]\nbody: attention\n")
    ended = nas("search", "space.yaml")

    assert ended.code == 2
    assert "space.yaml:1: this file is a space or an architecture, not a search file" in ended.err


def test_a_study_database_in_place_of_a_search_file_is_explained(study, nas):
    ended = nas("search", "runs/tiny.db")

    assert ended.code == 2
    assert "a study database, not a search file. It holds: tiny." in ended.err
    assert "`nas search tiny --storage runs/tiny.db`" in ended.err


@pytest.mark.parametrize("command", ["plan", "search"])
def test_a_search_file_that_is_not_there_is_bad_input(command, files, nas):
    (files / "good.yaml").write_text("")
    ended = nas(command, "goood.yaml")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: There is no file 'goood.yaml'. Did you mean 'good.yaml'?\n"


def test_a_python_file_in_place_of_a_search_file_is_explained(files, nas):
    (files / "own_task.py").write_text("class Mine: ...\n")
    ended = nas("search", "own_task.py", "--quiet")

    assert ended.code == 2
    assert "own_task.py is a Python file, not a search file." in ended.err
    assert "`task: own_task.py`" in ended.err and "`blocks: [own_task.py]`" in ended.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("study: [x\n", "broken.yaml:2: This is not YAML"),
        ("study: x\nbugdet: {trials: 1}\n", "Did you mean 'budget'?"),
        ("", "broken.yaml"),
    ],
)
def test_a_broken_search_file_is_told_with_its_lines(text, said, files, nas):
    (files / "broken.yaml").write_text(text)
    ended = nas("search", "broken.yaml")

    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_the_database_is_where_the_environment_says_unless_the_file_or_an_option_does(files, nas, monkeypatch):
    from nas import location
    from nas.config import searchfile

    config = searchfile.load("tiny.yaml")
    assert location.storage_for(config) == "sqlite:///runs/tiny.db"
    monkeypatch.setenv("NAS_STORAGE", "elsewhere.db")
    assert location.storage_for(config) == "sqlite:///elsewhere.db"
    (files / "tiny.yaml").write_text((files / "tiny.yaml").read_text() + "storage: written.db\n")
    written = searchfile.load("tiny.yaml")
    assert location.storage_for(written) == "sqlite:///written.db"
    assert location.storage_for(written, "postgresql://u:p@host/nas") == "postgresql+psycopg://u:p@host/nas"
    assert location.shown("postgresql://u:p@host/nas") == "postgresql://u:***@host/nas"


def test_an_architecture_is_trained_and_evaluated(files, nas):
    ended = nas("train", "baseline.yaml", "--steps", "2", "--data", "text.txt", "--length", "16")

    assert ended.code == 0
    assert ended.out.startswith("bits_per_byte: ")
    assert "step 2/2" in ended.err


def test_an_architecture_may_leave_out_what_the_task_decides(files, nas):
    (files / "open.yaml").write_text("kind: decoder\nwidth: 16\nbody: [feed_forward]\n")
    assert nas("train", "open.yaml", "--steps", "1", "--data", "text.txt", "--length", "16").code == 0


def test_training_prints_json(files, nas):
    ended = nas("train", "baseline.yaml", "--steps", "2", "--data", "text.txt", "--length", "16", "--json")

    assert ended.json()["metrics"]["run/steps"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["gone.yaml"], 2, "no file 'gone.yaml'"),
        (["baseline.yaml", "--data", "gone/*.txt"], 2, "no file matches"),
        (["baseline.yaml", "--task", "langage_model"], 2, "Did you mean 'language_model'?"),
        (["transformer_encoder", "--task", "language_model", "--data", "text.txt"], 2, "kind: decoder"),
        (["baseline.yaml", "--device", "tpu"], 2, "no device 'tpu'"),
        (["baseline.yaml", "--steps", "0"], 2, "--steps"),
    ],
)
def test_what_cannot_be_trained_is_told_without_a_traceback(arguments, code, said, files, nas):
    ended = nas("train", *arguments)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_the_commands_that_a_search_suggests_work_wherever_its_database_is(files, nas):
    """The search file names the database; `nas best` does not know that file."""
    with (files / "tiny.yaml").open("a") as file:
        file.write("storage: elsewhere.db\n")
    ended = nas("search", "tiny.yaml", "--set", "finals.top=0", "--set", "budget.trials=2")
    suggested = re.findall(r"`nas (.+?)`", ended.err)

    assert ended.code == 0 and len(suggested) == 2
    assert all(nas(*shlex.split(each)).code == 0 for each in suggested)
