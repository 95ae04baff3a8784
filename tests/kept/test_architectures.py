"""Architectures that earlier code wrote: they parse, keep their hash and their costs, build, and load their weights."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import nas as public
from searchspace import zoo
from searchspace.model.architecture import Architecture

KEPT = Path(__file__).parent
# Files of the zoo that changed since, with their new hash. The kept text still has the kept hash.
# reformer: the form of the authors' code, which made the published results (key_eps, scale, head_rotations).
CHANGED = {
    "reformer:tiny": "add4cc79ffb36c678aa7849484facec2a256910f4ecc140e26abc3efb6fd0abb",
    "reformer:base": "eaf24f8940837b3ee5bbe18943272ce08c71bf268d61c3f30ff46b68c6c7bc8a",
}
BEFORE, NOW = "kernel_attention", "nadaraya_watson"  # the block that has another name now; the old one stays valid


def unpacked(name):
    return json.loads(gzip.decompress((KEPT / f"{name}.json.gz").read_bytes()))


ARCHITECTURES, WEIGHTS = unpacked("architectures"), unpacked("weights")


def text_of(name):
    return ARCHITECTURES[name].get("text") or (KEPT / name).read_text()


def group_of(name):
    """exports/asked.yaml -> exports, gru:tiny -> tiny, everything:3 -> everything"""
    size = name.rpartition(":")[2]
    return size if size in ("base", "tiny") else name.partition("_")[0].partition(":")[0].partition("/")[0]


@pytest.mark.parametrize("group", ["base", "tiny", "everything", "exports"])
def test_architectures_keep_their_hash_and_costs(group, kept, nas, tmp_path):
    """The tiny ones of the zoo are asked for by their name, so they too are what they were, or what CHANGED says."""
    changes = []
    for name, old in ARCHITECTURES.items():
        if group_of(name) != group:
            continue
        text, reference = text_of(name), name
        read = Architecture.parse(text)
        if name in CHANGED:
            changes += kept.differences(CHANGED[name], zoo.load(*name.split(":")).hash, f"{name}.hash by name")
        if group == "base":  # whose costs take long
            changes += [f"{name}.hash"] if BEFORE not in text and read.hash != old["hash"] else []
            continue
        if group != "tiny" or name in CHANGED:
            reference = tmp_path / "one.yaml"
            reference.write_text(text)
        now = nas("show", reference, "--length", "64", "--json").json()
        assert read.hash == now["hash"] == Architecture.parse(read.text()).hash, f"{name} is read, printed, read"
        if BEFORE not in text:
            changes += kept.differences(old["hash"], now["hash"], f"{name}.hash")
        changes += kept.differences(old["cost"], now["cost"], f"{name}.cost")

    assert not changes, "\n".join(changes)


def test_both_names_of_a_block_are_one_architecture():
    for name in ARCHITECTURES:
        text = text_of(name)
        if BEFORE in text:
            read = Architecture.parse(text)
            if NOW in read.text():  # the block has its new name
                assert Architecture.parse(text.replace(BEFORE, NOW)).hash == read.hash, name
            else:
                assert read.hash == ARCHITECTURES[name]["hash"], name


@pytest.mark.parametrize("group", ["tiny", "everything", "exports"])
def test_old_weights_fit_and_give_the_same_answers(group, kept, tmp_path):
    """The parameters are called as they were, have their shapes, and mean what they meant."""
    for name, old in WEIGHTS.items():
        if group_of(name) != group:
            continue
        path = tmp_path / "one.yaml"
        path.write_text(text_of(name))
        model = kept.filled(public.build(path))
        shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
        answers = kept.answers(model, text_of(name), 8 if group == "exports" else 16)

        assert shapes == old["shapes"], name
        assert answers == pytest.approx(old["answers"], rel=1e-8, abs=1e-10), name


@pytest.mark.parametrize("name", ["winner", "interrupted-1"])
def test_an_exported_architecture_loads_its_weights(name):
    model = public.build(KEPT / "exports" / f"{name}.yaml")
    model.load_state_dict(load_file(KEPT / "exports" / f"{name}.safetensors"), strict=True)

    assert model.eval()(torch.zeros(1, 8, dtype=torch.int64)).isfinite().all()
