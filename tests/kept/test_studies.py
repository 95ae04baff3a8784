"""Studies that earlier code made: every command still reads them, and a search still goes on with them."""

import json
import re
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from sqlalchemy import create_engine

import nas as public
from nas.store.upkeep.filling import fill_rows

KEPT = Path(__file__).parent
STUDIES = sorted(path.name.partition(".")[0] for path in (KEPT / "studies").glob("*.db.gz"))
LEASED = "asked"  # one of its units is leased for ever, so a search would wait for it
ELSEWHERE = "lost"  # ran on Ray, and would kill this process
RESUMED = [name for name in STUDIES if name not in (LEASED, ELSEWHERE)]


def output(name):
    return json.loads((KEPT / "outputs" / f"{name}.json").read_text())


@pytest.mark.parametrize("name", STUDIES)
def test_commands_say_of_a_study_what_they_said(name, kept, nas, study):
    study(name)
    said = output(name)

    changes = [each for words, old in said.items() for each in kept.differences(old, nas(*words.split()).json(), words)]
    if kept.renamed(json.dumps(said)):
        changes = [each for each in changes if ".hash:" not in each]

    assert not changes, "\n".join(changes)


@pytest.mark.parametrize("name", RESUMED)
def test_a_search_goes_on_with_a_study(name, kept, nas, study):
    database = study(name)
    before = results(kept, database)

    budget = enlarge(Path(f"{name}.yaml"), 2)
    train_here(Path(f"{name}.yaml"))
    ended = nas("search", f"{name}.yaml", "--quiet", "--json")
    if name == "latency":  # it was made on another machine, which is refused; so this one is made the same
        then, here = re.findall(r"\(([0-9a-f]{8,})\)", ended.err)
        kept.change(database, "UPDATE trial SET evidence = replace(evidence, ?, ?)", then, here)
        kept.change(database, "UPDATE device SET hash = ?2, fingerprint = replace(fingerprint, ?1, ?2)", then, here)
        with create_engine(f"sqlite:///{database}").begin() as connection:
            fill_rows(connection, ["trial"])  # their checksums, as of rows that were written so
        ended = nas("search", f"{name}.yaml", "--quiet", "--json")
    status = nas("status", name, "--json").json()

    assert ended.code == 0, ended.err
    assert sum(status["trials"].values()) == budget, "the new trials are there"
    assert status["units"] == {"waiting": 0, "running": 0}
    assert before.items() <= results(kept, database).items(), "what was recorded stays"
    assert nas("replay", name, "--json").json()["same"], "old and new trials are proposed again as they are"
    assert nas("export", name, "--best", "--out", "-").code == 0


ONE_BASELINE = "baselines: transformer, match: parameters, shapes: usual, tune: {}"  # finals that take a second


def enlarge(path, more):
    """Give a search more trials, and finals with one baseline -> how many trials it has then."""
    said = output(path.stem)[f"status {path.stem} --json"]
    budget = max(sum(said["trials"].values()), said["budget"]) + (0 if said["units"]["waiting"] else more)
    larger = re.sub(r"trials: \d+", f"trials: {budget}", path.read_text())
    path.write_text(larger.replace("finals: {", f"finals: {{{ONE_BASELINE}, "))
    return budget


def train_here(path):
    """Let a search train in this process: a child takes seconds."""
    path.write_text(re.sub("(?m)^runner: inline\n", "", path.read_text()) + "\nrunner: {inline: {process: false}}\n")


def results(kept, database):
    """The values of every objective of every unit that has ended, as scripts that read the database find them."""
    query = """SELECT study.name, trial.number, unit.rung, v.name, v.value, trial.architecture_hash
        FROM objective_value AS v JOIN unit ON unit.id = v.unit_id JOIN trial ON trial.id = unit.trial_id
        JOIN study ON study.id = trial.study_id"""
    return {row[:4]: row[4:] for row in kept.rows(database, query)}


def test_units_that_were_left_go_on_from_their_checkpoints(nas, study):
    """Trial 5 was killed in its second rung, trial 2 was stopped in its own and put back in the queue."""
    study("interrupted")
    status = nas("status", "interrupted", "--json").json()
    assert status["units"] == {"waiting": 1, "running": 1}
    train_here(Path("interrupted.yaml"))

    assert nas("search", "interrupted.yaml", "--quiet").code == 0

    for number in (2, 5):
        shown = nas("show", f"interrupted:{number}", "--json").json()["trial"]
        assert [(rung["steps"], rung["state"]) for rung in shown["rungs"]] == [(8, "done"), (16, "done")]
        header = nas("export", "interrupted", "--trial", number, "--out", "-").out
        metrics = yaml.safe_load("\n".join(line[2:] for line in header.splitlines() if line.startswith("# ")))
        assert "restarted" not in metrics["search"]["metrics"], "it went on from the checkpoint of its first rung"


@pytest.mark.parametrize(("name", "trial", "file"), [("finished", 3, "winner"), ("interrupted", 1, "interrupted-1")])
def test_the_weights_of_a_trial_are_exported_as_they_were(name, trial, file, nas, study):
    study(name)

    assert nas("export", name, "--trial", trial, "--weights", "--out", "again.yaml").code == 0

    then, now = load_file(KEPT / "exports" / f"{file}.safetensors"), load_file("again.safetensors")
    assert then.keys() == now.keys()
    assert all(then[key].equal(now[key]) for key in then)


def test_a_unit_that_was_asked_for_is_told(kept, nas, study):
    database = study(LEASED)
    query = "SELECT id, owner FROM unit WHERE state = 'running' ORDER BY lease_expires"
    (lapsed, _), (unit, owner) = kept.rows(database, query)

    told = nas("tell", LEASED, unit, "--owner", owner, "loss=1.25", "error=0.5", "--json").json()
    assert told["metrics"] == {"loss": 1.25, "error": 0.5}
    assert nas("best", LEASED, "--json").json()[0]["loss"] in (1.25, 2.0)

    (asked,) = nas("ask", LEASED, "--json").json()
    assert asked["unit"] == lapsed, "the unit whose lease has run out is given to the next who asks"
    assert nas("tell", LEASED, lapsed, "--owner", asked["owner"], "--failure", "no time").code == 0


def test_two_studies_of_one_database_are_both_read(nas, study):
    database = study(LEASED)
    arguments = ("beside", "--storage", f"sqlite:///{database}", "--json")

    assert nas("status", *arguments).json()["trials"] == {}
    (asked,) = nas("ask", *arguments).json()
    assert asked["trial"] == 0 and asked["architecture"].startswith("kind: decoder")


def test_python_code_reads_a_study(study):
    database = study("finished")
    with public.open_study(f"sqlite:///{database}", "finished") as opened:
        best, front = opened.best(3), opened.pareto()
        architecture = opened.architecture(best[0].number)
        (asked,) = opened.ask() or [None]

    assert best[0].number in {each.number for each in front}
    assert architecture.hash == best[0].architecture_hash
    assert asked is None, "the budget is spent"
