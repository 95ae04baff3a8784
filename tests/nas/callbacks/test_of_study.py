"""Each trial of a study becomes one run of a callback, once."""

import csv
import dataclasses
import json
from importlib.util import find_spec

import pytest

import nas
from nas import location
from nas.callbacks import of_study
from nas.callbacks.of_study import STATES, TOLD, told
from nas.errors import UsageError
from nas.numbers import FIRST_FINAL

SEARCH = """\
study: told
space: {kind: decoder, width: 8, body: !choice [gru, attention: {heads: 2}]}
task: {copy: {length: 8}}
objectives: [loss]
strategy: random
scheduler: {halving: {rungs: [2, 4]}}
budget: {trials: 2}
runner: {inline: {process: false}}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "search.yaml").write_text(SEARCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        nas.search("search.yaml")
    store, found = location.open_existing("told", f"sqlite:///{folder}/runs/told.db")
    with store:
        yield store, found


def test_every_trial_is_written_with_its_curve_and_the_metrics_of_its_rungs(study, tmp_path):
    store, found = study
    trials = store.trials(found.id)
    assert list(told(store, found, ["csv"], tmp_path)) == [(each.number, "csv") for each in trials]
    for trial in trials:
        with (tmp_path / f"trial-{trial.number:05d}" / "metrics.csv").open() as file:
            rows = {(int(row["step"]), row["name"]): float(row["value"]) for row in csv.DictReader(file)}
        for unit in store.units(found.id, trial.number):
            metrics = store.metrics(found.id, trial.number, unit.rung)
            assert rows[unit.steps, "loss"] == metrics["loss"]
        curve = dict(store.curve(found.id, trial.number))
        assert curve and curve == {step: value for (step, name), value in rows.items() if name == "training/loss"}


def test_the_same_call_again_adds_only_what_is_new(study, tmp_path):
    store, found = study
    first = list(told(store, found, ["csv"], tmp_path))
    assert list(told(store, found, ["csv"], tmp_path, follow=True)) == [], "nothing runs, so it does not wait"
    known = json.loads((tmp_path / TOLD).read_text())
    known["csv"].remove(1)
    (tmp_path / TOLD).write_text(json.dumps(known))
    assert list(told(store, found, ["csv"], tmp_path)) == [each for each in first if each[0] == 1]


def test_an_unknown_callback_is_told(study, tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'csv'"):
        list(told(*study, ["cvs"], tmp_path))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="Did you mean 'csv'"):
        list(told(*study, ["csv", "cvs"], tmp_path, trials=[]))


def test_an_interrupted_trial_and_one_that_was_trained_further_are_written_whole_once(study, tmp_path):
    store, found = study
    names = ["csv", *(["tensorboard"] if find_spec("tensorboard") else [])]
    list(told(store, found, names, tmp_path))
    file = tmp_path / "trial-00000" / "metrics.csv"
    whole, events = file.read_text(), len([*tmp_path.rglob("events.*")])
    known = json.loads((tmp_path / TOLD).read_text())
    file.write_text(whole[: len(whole) // 2])
    known["csv"].remove(0)  # as a call that was interrupted in the middle leaves it
    for name in names:
        known[STATES][name]["1"] = "failed 0"
    (tmp_path / TOLD).write_text(json.dumps(known))
    assert list(told(store, found, names, tmp_path)) == [(0, "csv"), *((1, name) for name in names)]
    assert file.read_text() == whole and len([*tmp_path.rglob("events.*")]) == events
    assert list(told(store, found, names, tmp_path)) == []


def test_a_final_has_a_folder_of_its_own(study):
    store, found = study
    final = dataclasses.replace(store.trial(found.id, 0), number=FIRST_FINAL + 1, place=1, purpose="final")
    assert of_study._name_of_folder(final) == "final-00002"
