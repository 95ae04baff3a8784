"""The weights that a tool finds are compared with ours, under the names and in the form of each format."""

import torch

from nas.exports.native import native
from nas.exports.weights import other_weights
from nas.exports.winner import Winner
from searchspace import zoo
from searchspace.model.build import build


def winner(name):
    torch.manual_seed(0)
    architecture = zoo.load(name, "tiny")
    state = {key: value + 0.01 * torch.randn(value.shape) for key, value in build(architecture).state_dict().items()}
    return Winner(0, architecture, {}, lambda: state), state


def changed(state, name):
    value = state[name].clone(memory_format=torch.contiguous_format)
    value.view(-1)[3] += 0.05
    return {**state, name: value}


def test_weights_of_a_native_folder_are_compared_under_the_names_of_transformers():
    found, state = winner("transformer_decoder")
    theirs = dict(native(found, state).state)
    theirs["lm_head.weight"] = theirs["transformer.wte.weight"]  # as transformers ties them

    assert other_weights(found, "huggingface", [theirs]) == []
    for name in ("transformer.wte.weight", "transformer.h.1.mlp.c_fc.bias"):
        assert other_weights(found, "huggingface", [changed(theirs, name)]) == [name]
    del theirs["transformer.wpe.weight"]
    assert other_weights(found, "huggingface", [theirs]) == ["transformer.wpe.weight"]


def test_weights_of_a_graph_are_found_turned_and_cut():
    found, state = winner("transformer_encoder")
    graph = {f"v{n}": value.T if value.dim() == 2 else value for n, value in enumerate(state.values())}
    segments = list(state).index("segments.table")
    graph[f"v{segments}"] = state["segments.table"][0]  # no token is of the second segment
    graph["constant"] = torch.arange(9.0)
    table = f"v{list(state).index('input.table.weight')}"

    assert other_weights(found, "onnx", [graph, {"table": graph[table], "own": torch.rand(7)}]) == []
    assert other_weights(found, "onnx", [changed(graph, table)]) == ["input.table.weight", table]
    assert other_weights(found, "onnx", [changed({**graph, "tied": graph[table]}, table)]) == [table]
    assert other_weights(found, "onnx", [graph, {"table": changed(graph, table)[table]}]) == ["table"]


def test_a_decode_step_may_lack_weights_but_not_change_them():
    found, state = winner("gru")
    prompt = {f"net.{name}": value for name, value in state.items()}
    first, second, *_ = prompt

    assert other_weights(found, "torch", [prompt, {first: prompt[first]}]) == []
    assert other_weights(found, "torch", [prompt, {second: prompt[second] + 1}]) == [second]
