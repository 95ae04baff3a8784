"""nas export: what leaves a study builds again, with its weights and its history."""

import pytest
import torch
import yaml
from safetensors.torch import load_file

import nas as package
from nas.store import open_store
from searchspace.model.architecture import Architecture


def header_of(path):
    lines = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ")]
    return yaml.safe_load("\n".join(lines))


def test_the_winner_is_exported_with_where_it_comes_from(study, nas, tmp_path):
    path = tmp_path / "best.yaml"
    (file,) = nas("export", "tiny", "--best", "--out", str(path), "--json").json()["files"]
    header = header_of(path)
    winner = nas("search", "tiny.yaml", "--quiet", "--json").json()["finals"]

    assert file == str(path)
    assert header["trial"] == winner["winner"]
    assert header["architecture"] == Architecture.load(path).hash
    assert header["recipe"]["learning_rate"] == 1e-3 and "adamw" in header["recipe"]["optimiser"]
    assert header["data_sha256"]
    assert header["vocabulary"] == {"kind": "bytes", "size": 256}
    assert header["lineage"]
    assert header["environment"]["torch"] == torch.__version__
    assert header["search"]["objectives"]["flops"] == header["costs"]["flops"]
    assert len(header["finals"]["all_seeds"]["test"]) == 2
    assert header["finals"]["verdict"] in winner["sentence"]


def test_weights_load_into_the_built_architecture_and_score_what_the_header_says(study, nas, tmp_path):
    path = tmp_path / "best.yaml"
    nas("export", "tiny", "--best", "--weights", "--out", str(path))

    model = package.build(path)
    missing = model.load_state_dict(load_file(path.with_suffix(".safetensors")))
    model.eval()
    text = (study.folder / "text.txt").read_bytes()[:65]
    tokens = torch.tensor(list(text)).view(1, -1)
    with torch.inference_mode():
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1])[0], tokens[0, 1:])

    assert not missing.missing_keys and not missing.unexpected_keys
    assert model.embedding.output is None  # the space ties its embeddings
    assert loss.item() == pytest.approx(header_of(path)["finals"]["metrics"]["loss"], rel=0.1)


def test_every_trial_can_be_exported_and_reads_back_to_its_hash(study, nas, tmp_path):
    with open_store(study.storage) as store:
        trials = store.trials(store.study("tiny").id)

    for trial in trials:
        path = tmp_path / f"{trial.number}.yaml"
        assert nas("export", "tiny", "--trial", trial.number, "--weights", "--out", path).code == 0
        assert Architecture.load(path).hash == trial.architecture_hash
        package.build(path).load_state_dict(load_file(path.with_suffix(".safetensors")))


def test_an_export_can_be_printed(study, nas):
    ended = nas("export", "tiny", "--trial", "0", "--out", "-")

    assert ended.err == ""
    assert Architecture.parse(ended.out).hash == nas("show", "tiny:0", "--json").json()["hash"]
    assert (
        nas("export", "tiny", "--trial", "0", "--out", "-", "--json").json()["text"].splitlines()[0]
        == (ended.out.splitlines()[0])
    )


@pytest.mark.usefixtures("measured_once")
def test_an_exported_architecture_is_trained_and_profiled(study, nas, tmp_path):
    path = str(tmp_path / "best.yaml")
    nas("export", "tiny", "--best", "--out", path)

    assert nas("train", path, "--steps", "1", "--data", "text.txt", "--length", "16").code == 0
    measured = nas("profile", path, "--length", "8", "--json").json()
    assert {row["phase"] for row in measured} == {"prefill", "decode", "train"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "--best or --trial N"),
        (["--best", "--trial", "0"], 2, "--best or --trial N"),
        (["--trial", "99"], 2, "No trial 99"),
        (["--best", "--out", "-", "--weights"], 2, "Only YAML can be printed"),
        (["--best", "--out", "nowhere/best.yaml"], 1, "Could not write nowhere/best.yaml"),
        (["--best", "--out", "runs"], 2, "is a folder"),
        (["--best", "--out", "best.safetensors"], 2, "is YAML"),
        (["--best", "--out", "best.py"], 2, "For python name a folder: --format python --out best."),
    ],
)
def test_what_cannot_be_exported_is_told(arguments, code, said, study, nas):
    ended = nas("export", "tiny", *arguments)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_weights_that_are_gone_are_told_and_nothing_is_written(finished, nas, tmp_path, monkeypatch):
    with open_store(finished.storage) as store:
        found = store.study("tiny")
        unit = store.units(found.id, 0)[-1]
    monkeypatch.chdir(finished.folder)
    kept = finished.folder / "kept"
    file = finished.folder / unit.checkpoint_uri
    file.rename(kept)
    try:
        ended = nas("export", "tiny", "--trial", "0", "--weights", "--out", tmp_path / "gone.yaml")
    finally:
        kept.rename(file)

    assert ended.code == 1
    assert "cannot be exported" in ended.err
    assert not (tmp_path / "gone.yaml").exists()
