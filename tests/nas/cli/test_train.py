"""nas train, nas eval and nas generate: a trial trains on as in its search, and its folder is used."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import nas as package
from nas import report
from nas.store import open_store

LOSSES = ("bits_per_byte", "loss")


def recorded(study, number):
    """What the search stored at each rung of a trial: {steps: metrics}."""
    with open_store(study.storage) as store:
        found = store.study("tiny")
        units = [unit for unit in store.units(found.id, number) if unit.kind.value == "train"]
        return {unit.steps: store.metrics(found.id, number, unit.rung) for unit in units}, report.curve(
            store, found, number
        )


def longest(study):
    with open_store(study.storage) as store:
        return max(store.trials(store.study("tiny").id), key=lambda each: each.steps or 0).number


def test_a_trial_trains_again_to_the_numbers_of_its_search(study, nas):
    number = longest(study)
    rungs, curve = recorded(study, number)
    ended = nas("train", f"tiny:{number}", "--json")
    points = {point["step"]: point for point in ended.json()["points"]}

    assert points.keys() == rungs.keys() == {1, 2}
    for steps, metrics in rungs.items():
        assert [points[steps][name] for name in LOSSES] == [metrics[name] for name in LOSSES]
    assert [loss for _, loss in curve] == [point["run/train_loss"] for point in points.values()]
    assert "length: 16, batch: 2, split" in ended.err
    assert "learning_rate: 0.001" in ended.err


def test_an_exported_file_trains_to_the_numbers_in_its_header(study, nas, tmp_path):
    path = tmp_path / "best.yaml"
    nas("export", "tiny", "--trial", longest(study), "--out", path)
    found = nas("train", path, "--json").json()["metrics"]
    rungs, _ = recorded(study, longest(study))

    header = nas("show", path, "--json")
    assert header.code == 0
    assert found["bits_per_byte"] in [metrics["bits_per_byte"] for metrics in rungs.values()]


def test_a_training_resumes_to_the_numbers_of_one_without_a_break(study, nas, tmp_path):
    whole = nas("train", "tiny:0", "--steps", "2", "--evaluate", "1", "--json").json()["points"]
    folder = tmp_path / "half"
    assert nas("train", "tiny:0", "--steps", "1", "--out", folder).code == 0
    resumed = nas("train", "tiny:0", "--steps", "2", "--out", folder, "--resume", "--json").json()["points"]

    assert [[point[name] for name in LOSSES] for point in resumed] == [
        [point[name] for name in LOSSES] for point in whole
    ]
    assert nas("train", "tiny:0", "--steps", "2", "--out", folder, "--resume").code == 2  # it is at the end
    assert len(list(folder.glob("*.pt"))) <= 2


def test_a_training_resumes_as_it_began_and_options_still_override(study, nas, tmp_path):
    folder = tmp_path / "t"
    nas("train", "tiny:0", "--steps", "1", "--learning-rate", "0.02", "--seed", "5", "--length", "8", "--out", folder)
    again = nas("train", "tiny:0", "--steps", "2", "--out", folder, "--resume").err
    third = nas("train", "tiny:0", "--steps", "3", "--seed", "6", "--out", folder, "--resume").err

    assert "learning_rate: 0.02" in again and "seed: 5" in again and "length: 8" in again
    assert "learning_rate: 0.02" in third and "seed: 6" in third


def test_a_trial_resumes_from_its_own_checkpoint(study, nas):
    after = max(recorded(study, 0)[0])
    points = nas("train", "tiny:0", "--steps", "4", "--evaluate", "1", "--resume", "--json").json()["points"]

    assert [point["step"] for point in points] == list(range(after + 1, 5))


def test_callbacks_get_every_evaluation(study, nas, tmp_path):
    options = ["--steps", "2", "--evaluate", "1", "--out", tmp_path / "t", "--callback", "csv"]
    points = nas("train", "tiny:0", *options, "--json").json()["points"]
    rows = [line.split(",") for line in (tmp_path / "t/metrics.csv").read_text().splitlines()[1:]]

    assert [float(value) for _, name, value in rows if name == "loss"] == [point["loss"] for point in points]
    assert any(name == "training/loss" for _, name, _ in rows)
    assert nas("train", "tiny:0", "--callback", "csv").code == 2


def test_options_replace_what_was_recorded(study, nas, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("recipe: {learning_rate: 0.01, schedule: linear}\n")
    ended = nas(
        "train", "tiny:0", "--steps", "1", "--length", "8", "--recipe", recipe, "--learning-rate", "0.02", "--seed", "7"
    )

    assert ended.code == 0
    assert "length: 8" in ended.err
    assert "recipe: schedule: linear, learning_rate: 0.02" in ended.err
    assert "seed: 7" in ended.err


def test_a_model_of_the_zoo_trains_on_a_task_of_its_kind_and_continues_without_its_name(study, nas, tmp_path):
    command = ["train", "transformer_encoder:tiny", "--out", tmp_path / "out"]
    assert nas(*command, "--task", "digits", "--steps", 1).code == 0
    again = nas(*command, "--resume", "--steps", 2)
    assert again.code == 0 and "task: digits" in again.err
    assert nas("eval", "transformer_encoder:tiny", "--task", "digits", "--weights", tmp_path / "out").code == 0


def test_a_file_gets_the_fields_that_it_leaves_out_from_the_task(study, nas):
    Path("left_out.yaml").write_text("{kind: encoder, width: 8, features: 4, body: attention}")
    assert nas("train", "left_out.yaml", "--task", "digits", "--steps", 1).code == 0
    Path("left_out.yaml").write_text("{kind: decoder, width: 8, body: attention}")
    said = "needs 'vocabulary' (a whole number). A search fills it in from its task, and `nas train` from --task. "
    for command in (["show"], ["profile"], ["show", "gru:tiny"]):
        ended = nas(*command, "left_out.yaml")
        assert (ended.code, said + "Other commands need it in the file" in ended.err) == (2, True)


def test_weights_are_a_start(study, nas, tmp_path):
    assert nas("train", "tiny:0", "--steps", "3", "--out", tmp_path / "a").code == 0
    best = json.loads((tmp_path / "a/training.json").read_text())["best"]["uri"]
    new = nas("train", "tiny:0", "--steps", "1", "--learning-rate", "1e-9", "--json").json()["metrics"]["loss"]
    old = nas("train", "tiny:0", "--steps", "1", "--learning-rate", "1e-9", "--from", best, "--json").json()

    assert old["metrics"]["loss"] < new - 0.01


def test_the_folder_of_a_training_is_evaluated_and_generates(study, nas, tmp_path):
    folder = tmp_path / "trained"
    last = nas("train", "tiny:0", "--out", folder, "--steps", "2", "--json").json()["metrics"]
    found = nas("eval", folder, "--split", "validation", "--json").json()["metrics"]

    assert found["loss"] == pytest.approx(last["loss"], rel=1e-6)
    model, vocabulary, task = package.load(folder)
    assert vocabulary.encode("a") == [97]
    assert type(task).__name__ == "LanguageModel"
    assert not model.training
    text = nas("generate", folder, "--prompt", "To be", "--steps", "5", "--temperature", "0", "--json").json()
    assert len(text["symbols"]) == 5
    assert text["text"] == vocabulary.decode(text["symbols"])
    assert nas("generate", folder, "--prompt", "To be", "--steps", "5", "--beams", "2").out.startswith("To be")


def test_a_trial_and_an_export_load_the_same_model(study, nas, tmp_path):
    path = tmp_path / "0.yaml"
    nas("export", "tiny", "--trial", "0", "--weights", "--out", path)
    tokens = torch.arange(8).view(1, 8)

    trial, export = package.load("tiny:0").model, package.load(path).model
    assert torch.equal(trial(tokens), export(tokens))
    assert load_file(path.with_suffix(".safetensors")).keys() == trial.state_dict().keys()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train", "gru:tiny", "--resume"], 2, "nothing to resume"),
        (["train", "tiny:0", "--from", "missing.pt"], 2, "no file"),
        (["train", "tiny:0", "--from", "tiny:1", "--resume"], 2, "either --resume or --from"),
        (["train", "tiny:0", "--recipe", "missing.yaml"], 2, "missing.yaml"),
        (["train", "tiny:0", "--recipe", "text.txt"], 2, "recipe"),
        (["train", "tiny:0", "--recipe", "squared.yaml"], 2, "Criteria for these: cross_entropy"),
        (["generate", "gru:tiny", "--prompt", "a"], 2, "no trained weights"),
        (["generate", "tiny:0", "--prompt", "a", "--top-p", "0"], 2, "top_p"),
        (["generate", "tiny:0", "--prompt", ""], 2, "at least one symbol"),
        (["generate", "tiny:0", "--prompt", "a", "--seed", str(2**64)], 2, "--seed"),
        (["generate", "tiny:0", "--prompt", "a", "--beams", "2", "--top-k", "3"], 2, "leave out --top-k"),
        (["train", "tiny:0", "--seed", str(2**64)], 2, "--seed"),
        (["eval", "tiny:0", "--split", "train"], 2, "validation or test"),
        (["eval", "gru:tiny", "--task", "digits"], 2, "needs"),
        (["train", "gru:tiny", "--task", "digits"], 2, "the task decides them"),
        (["train", "funnel:tiny", "--task", "masked_language_model"], 2, "tokens: true"),
    ],
)
def test_what_cannot_be_done_is_told(arguments, code, said, study, nas):
    Path("squared.yaml").write_text("criterion: mean_squared_error")

    ended = nas(*arguments)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_a_folder_with_other_work_is_not_trained_over(study, nas, tmp_path):
    folder, own = tmp_path / "t", tmp_path / "own"
    assert nas("train", "tiny:0", "--steps", "1", "--out", folder).code == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    own.mkdir()
    (own / "architecture.yaml").write_text("kind: decoder\n")

    again = nas("train", "tiny:1", "--steps", "1", "--out", folder)
    assert (again.code, "holds a training already" in again.err) == (2, True)
    assert "of your own" in nas("train", "tiny:1", "--steps", "1", "--out", own).err
    assert "is a file" in nas("train", "tiny:1", "--steps", "1", "--out", own / "architecture.yaml").err
    assert "holds a training" in nas("export", "tiny:1", "--format", "python", "-o", folder).err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_moved_resumes_and_a_damaged_one_is_named(study, nas, tmp_path):
    assert nas("train", "tiny:0", "--steps", "1", "--out", tmp_path / "t").code == 0
    moved = (tmp_path / "t").rename(tmp_path / "moved")
    resume = ["train", moved, "--steps", "2", "--out", moved, "--resume"]
    assert nas(*resume).code == 0
    (moved / "training.json").write_text("{")
    ended = nas(*resume)

    assert (ended.code, "is not the record of a training" in ended.err) == (1, True)


@pytest.mark.parametrize("content", [{"a": torch.ones(1)}, [1], {"model": 3}])
def test_a_file_that_is_no_checkpoint_is_named(study, nas, tmp_path, content):
    torch.save(content, tmp_path / "other.pt")
    ended = nas("eval", "tiny:0", "--weights", tmp_path / "other.pt")

    assert (ended.code, "is not a checkpoint of a training" in ended.err) == (1, True)
