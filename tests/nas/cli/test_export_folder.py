"""nas export to a folder: the files, the model card and the check."""

import json

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import nas as package
from nas.child import Child
from nas.errors import UsageError


def test_a_folder_has_a_card_and_passes_its_check(study, nas, tmp_path):
    options = ["--format", "python", "--licence", "MIT", "--tolerance", "0.5", "--json"]
    ended = nas("export", "tiny", "--best", *options, "-o", tmp_path / "best")
    found = ended.json()
    names = {path.relative_to(tmp_path / "best").as_posix() for path in (tmp_path / "best").iterdir()}
    card = (tmp_path / "best/README.md").read_text()
    _, front, body = card.split("---\n", 2)

    assert (ended.code, found["wrong"], found["checked"]) == (0, [], True)
    assert names == {"architecture.yaml", "model.safetensors", "model.py", "README.md"}
    assert yaml.safe_load(front)["license"] == "MIT"
    tolerance = "50% of a measured latency"
    for said in (
        "| yaml | passed |",
        "| python | passed |",
        tolerance,
        "data_sha256",
        "95 % interval",
        "torch:",
        "## Lineage",
    ):
        assert said in body
    assert "| bits_per_byte | test |" in body


def test_a_check_that_is_left_out_is_recorded(study, nas, tmp_path):
    ended = nas("export", "tiny:0", "-o", tmp_path / "zero", "--no-check", "--json")

    assert ended.json()["checked"] is False
    assert "`--no-check`" in (tmp_path / "zero/README.md").read_text()
    assert package.load(tmp_path / "zero").vocabulary.size == 256


def test_an_exported_folder_and_a_training_are_exported_again(study, nas, tmp_path):
    nas("train", "tiny:0", "--out", tmp_path / "trained")
    first = nas("export", tmp_path / "trained", "-o", tmp_path / "a", "--no-check", "--json")
    again = nas(
        "export", tmp_path / "a", "--format", "safetensors,python", "-o", tmp_path / "b", "--no-check", "--json"
    )

    assert (first.code, again.code) == (0, 0)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_a_difference_fails_the_check(study, nas, tmp_path, monkeypatch):
    from nas.exports import checking

    monkeypatch.setattr(checking, "OUTPUTS", -1.0)
    ended = nas("export", "tiny", "--trial", "0", "--format", "safetensors", "-o", tmp_path / "bad")

    assert ended.code == 1
    assert "does not pass its check" in ended.err
    assert "yaml: an output differs" in ended.err
    assert "an output differs" in (tmp_path / "bad/README.md").read_text()


def test_the_hugging_face_folder_names_its_task_and_tokenizer(study, nas, tmp_path):
    nas("export", "tiny:0", "--format", "huggingface", "-o", tmp_path / "h", "--no-check")
    config = json.loads((tmp_path / "h/huggingface/config.json").read_text())
    tokenizer = json.loads((tmp_path / "h/huggingface/tokenizer.json").read_text())

    assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_tessera.TesseraForCausalLM"
    assert sorted(tokenizer["model"]["vocab"].values()) == list(range(256))
    assert (tmp_path / "h/huggingface/README.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["tiny", "--best", "--format", "pyton", "-o", "x"], 2, "Did you mean 'python'"),
        (["tiny", "--best", "--format", "python", "-o", "text.txt"], 2, "is a file"),
        (["tiny:99", "--format", "python"], 2, "No trial 99"),
    ],
)
def test_what_cannot_be_exported_is_told(arguments, code, said, study, nas):
    ended = nas("export", *arguments)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


def test_other_work_and_stale_formats_are_not_mixed_with_an_export(study, nas, tmp_path):
    mine, best = tmp_path / "mine", tmp_path / "best"
    mine.mkdir()
    (mine / "README.md").write_text("# Mine\n")
    refused = nas("export", "tiny:0", "--format", "python", "-o", mine, "--no-check")
    assert (refused.code, [path.name for path in mine.iterdir()]) == (2, ["README.md"])

    assert nas("export", "tiny:0", "--format", "python", "-o", best, "--no-check").code == 0
    stale = nas("export", "tiny:1", "-o", best, "--no-check")
    assert (stale.code, "does not replace" in stale.err, "model.py" in stale.err) == (2, True, True)
    assert nas("export", "tiny:1", "--format", "python", "-o", best, "--no-check").code == 0


def test_a_file_that_cannot_be_written_leaves_the_older_export_whole(study, nas, tmp_path, monkeypatch):
    from nas.errors import NasError
    from nas.exports import files

    best, real = tmp_path / "best", files.writing
    assert nas("export", "tiny:0", "-o", best, "--no-check").code == 0
    before = {path: path.read_bytes() for path in best.iterdir()}

    def writing(path):
        if path.suffix == ".safetensors":
            raise NasError("the disk is full")
        return real(path)

    monkeypatch.setattr(files, "writing", writing)
    assert nas("export", "tiny:1", "-o", best, "--no-check").code == 1
    assert {path: path.read_bytes() for path in best.iterdir()} == before


def test_the_card_of_a_training_has_the_metrics_of_its_best_step(study, nas, tmp_path):
    trained = nas("train", "tiny:0", "--steps", "2", "--evaluate", "1", "--out", tmp_path / "t")
    found = json.loads((tmp_path / "t/training.json").read_text())
    best = next(each for each in found["points"] if each["step"] == found["best_step"])
    ended = nas("export", tmp_path / "t", "-o", tmp_path / "a", "--no-check")
    card = (tmp_path / "a/README.md").read_text()

    assert ended.code == 0
    assert f"| loss, exported run | validation | {best['metrics']['loss']:.4g} |" in card
    assert f"steps: {found['best_step']}" in card
    assert "step 1/2 " in trained.err
    for said in ("# tiny, trial 0", "- trial 0 (", "trained_from: tiny:0", "## Environment", "torch: ", " parameters."):
        assert said in card


def test_the_function_writes_what_the_command_writes(study, nas, tmp_path):
    nas("export", "tiny:0", "-o", tmp_path / "a", "--format", "python", "--no-check", "--licence", "MIT")
    made = package.export("tiny:0", tmp_path / "b", formats="python", check=False, licence="MIT")
    assert made.path == tmp_path / "b"
    assert made.checked is None
    assert sorted(made.files) == sorted(tmp_path / "b" / file.name for file in (tmp_path / "a").iterdir())
    weights = "model.safetensors"  # the others say when they were made
    assert (tmp_path / "b" / weights).read_bytes() == (tmp_path / "a" / weights).read_bytes()
    assert package.export("tiny", tmp_path / "winner.yaml").files == [tmp_path / "winner.yaml"]
    with pytest.raises(UsageError, match="export format"):
        package.export(tmp_path / "a", tmp_path / "c", formats=["pyton"])
    with pytest.raises(UsageError, match="Name a study"):
        package.export(None)


def test_one_changed_weight_fails_the_check_even_if_no_output_shows_it(study, nas, tmp_path):
    from nas.exports import checking, files

    package.export("tiny:0", tmp_path / "out", formats=["safetensors", "python"], check=False)
    file = tmp_path / "out/model.safetensors"
    state = load_file(file)
    name = max(state, key=lambda name: state[name].numel())
    state[name].view(-1)[0] *= -1  # the sum of the squares stays
    save_file(state, file)
    with files.chosen("tiny:0", None) as found:
        checked = checking.check(found, tmp_path / "out", ["yaml", "python"])
    assert all(f"weights differ: {name}" in "".join(each.wrong) for each in checked), checked


def test_a_check_that_hangs_or_fails_does_not_stop_the_others(tmp_path):
    (tmp_path / "model.py").write_text("import signal\nsignal.pause()\n")
    torch.save({}, tmp_path / "expected.pt")
    child = Child()
    found = child.call("nas.exports.checks:run", tmp_path, tmp_path, ["python"], 1.0)
    found |= child.call("nas.exports.checks:run", tmp_path, tmp_path, ["torch"], 60.0)
    (tmp_path / "model.py").write_text("import os\nos.abort()\n")
    found |= {"crashed": child.call("nas.exports.checks:run", tmp_path, tmp_path, ["python"], 60.0)["python"]}
    child.kill()

    assert found["python"] == "it took longer than 1.0 seconds" and "program.pt2" in found["torch"]
    assert "SIGABRT" in found["crashed"] and "model.py" in found["crashed"]


def test_every_format_has_a_check_that_loads_it_again():
    from nas.exports import checking, checks, registry

    assert {checking.MODULES.get(name, name) for name in registry.registry.names()} == checks.CHECKS.keys()
