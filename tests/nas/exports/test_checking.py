"""The check of an export: each format in a process that cannot see this package, its outputs and its weights."""

import importlib.util
import json

import pytest
import torch

from nas.exports import files
from nas.exports.checking import check, other_weights
from nas.exports.native import native
from nas.exports.winner import Winner
from nas.tasks.vocabulary import Characters
from searchspace import zoo
from searchspace.model.build import build


def winner(name, **about):
    torch.manual_seed(0)
    architecture = zoo.load(name, "tiny")
    state = {key: value + 0.01 * torch.randn(value.shape) for key, value in build(architecture).state_dict().items()}
    return Winner(0, architecture, about, lambda: state), state


def changed(state, name):
    value = state[name].clone(memory_format=torch.contiguous_format)
    value.view(-1)[3] += 0.05
    return {**state, name: value}


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_a_folder_of_transformers_passes_with_its_tokenizer_and_a_changed_symbol_fails(tmp_path):
    vocabulary = Characters("".join(map(chr, range(32, 32 + 256))))
    found, state = winner("gru", vocabulary=vocabulary.to_dict())
    files.write_folder(found, tmp_path, ["huggingface", "python"], check=False)
    passed = check(found, tmp_path, ["huggingface", "python"])
    assert [each.wrong for each in passed] == [(), ()]
    assert passed[0].numbers["symbols"] == list(range(128))
    assert passed[0].numbers["parameters"] == sum(value.numel() for value in state.values())

    tokenizer = tmp_path / "huggingface/tokenizer.json"
    content = json.loads(tokenizer.read_text())
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    tokenizer.write_text(json.dumps(content))
    (failed,) = check(found, tmp_path, ["huggingface"])
    assert "the tokenizer" in "".join(failed.wrong)


def test_weights_of_a_native_folder_are_compared_under_the_names_of_transformers():
    found, state = winner("transformer_decoder")
    theirs = dict(native(found, state).state)
    theirs["lm_head.weight"] = theirs["transformer.wte.weight"]  # as transformers ties them

    assert other_weights(found, "huggingface", [theirs]) == []
    for name in ("transformer.wte.weight", "transformer.h.1.mlp.c_fc.bias"):
        assert other_weights(found, "huggingface", [changed(theirs, name)]) == [name]
    del theirs["transformer.wpe.weight"]
    assert other_weights(found, "huggingface", [theirs]) == ["transformer.wpe.weight"]


def test_a_decode_step_may_lack_weights_but_not_change_them():
    found, state = winner("gru")
    prompt = {f"net.{name}": value for name, value in state.items()}
    first, second, *_ = prompt

    assert other_weights(found, "torch", [prompt, {first: prompt[first]}]) == []
    assert other_weights(found, "torch", [prompt, {second: prompt[second] + 1}]) == [second]
