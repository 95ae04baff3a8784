"""Runs prompt.onnx in the folder `onnx` with ONNX Runtime, and decode.onnx for the last symbol; reads their weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch


def check(folder: Path, expected: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, torch.Tensor]]]:
    """The difference, also that of the last step, and the tensors of each graph. See `nas.exports.checks`."""
    prompt, decode = folder / "onnx/prompt.onnx", folder / "onnx/decode.onnx"
    inputs, outputs = expected["inputs"], expected["outputs"]
    difference = float((_run(prompt, inputs)[0] - outputs).abs().max())
    if decode.is_file():
        _, *state = _run(prompt, (*inputs[:-1], inputs[-1][:, :-1]))
        step = _run(decode, (inputs[-1][:, -1:], *state))[0]
        difference = max(difference, float((step - outputs[:, -1:]).abs().max()))
    weights = [_tensors(onnx.load(graph).graph) for graph in (prompt, decode) if graph.is_file()]
    return {"difference": difference}, weights


def _run(graph: Path, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    named = {each.name: given.numpy() for each, given in zip(session.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(each) for each in session.run(None, named)]


def _tensors(graph: onnx.GraphProto) -> dict[str, torch.Tensor]:
    """The tensors of floats in a graph and the graphs in it, by name."""
    inner = [each for node in graph.node for each in node.attribute]
    constants = [each.t for each in inner if each.type == onnx.AttributeProto.TENSOR]
    floats = [each for each in (*graph.initializer, *constants) if each.data_type == onnx.TensorProto.FLOAT]
    arrays = {f"{n}:{each.name}": torch.tensor(onnx.numpy_helper.to_array(each)) for n, each in enumerate(floats)}
    for each in inner:
        if each.type == onnx.AttributeProto.GRAPH:
            arrays |= {f"{len(arrays)}/{name}": value for name, value in _tensors(each.g).items()}
    return arrays
