"""Runs prompt.onnx in the folder `onnx` with ONNX Runtime, and decode.onnx for the last symbol; reads their weights."""

import json
import sys
from pathlib import Path

for hidden in ("nas", "searchspace", "kernels", "tuner"):
    sys.modules[hidden] = None  # type: ignore[assignment]
sys.path.pop(0)  # this folder, in which this file has the name of the library

import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402


def run(name: str, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The outputs of a graph."""
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    named = {each.name: given.numpy() for each, given in zip(session.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(each) for each in session.run(None, named)]


def tensors(graph: onnx.GraphProto) -> dict[str, torch.Tensor]:
    """The tensors of floats in a graph and the graphs in it, by name."""
    inner = [each for node in graph.node for each in node.attribute]
    constants = [each.t for each in inner if each.type == onnx.AttributeProto.TENSOR]
    floats = [each for each in (*graph.initializer, *constants) if each.data_type == onnx.TensorProto.FLOAT]
    arrays = {f"{n}:{each.name}": torch.tensor(onnx.numpy_helper.to_array(each)) for n, each in enumerate(floats)}
    for each in inner:
        if each.type == onnx.AttributeProto.GRAPH:
            arrays |= {f"{len(arrays)}/{name}": value for name, value in tensors(each.g).items()}
    return arrays


folder, expected = Path(sys.argv[1]) / "onnx", torch.load(sys.argv[2])
inputs, outputs = expected["inputs"], expected["outputs"]
difference = float((run("prompt", inputs)[0] - outputs).abs().max())
if (folder / "decode.onnx").is_file():
    _, *state = run("prompt", (*inputs[:-1], inputs[-1][:, :-1]))
    step = run("decode", (inputs[-1][:, -1:], *state))[0]
    difference = max(difference, float((step - outputs[:, -1:]).abs().max()))
graphs = [folder / f"{name}.onnx" for name in ("prompt", "decode")]
torch.save([tensors(onnx.load(each).graph) for each in graphs if each.is_file()], sys.argv[3])
print(json.dumps({"difference": difference}))
