"""Runs prompt.onnx in the folder `onnx` with ONNX Runtime, and decode.onnx for the last symbol."""

import json
import sys
from pathlib import Path

for hidden in ("nas", "searchspace", "kernels", "tuner"):
    sys.modules[hidden] = None  # type: ignore[assignment]
sys.path.pop(0)  # this folder, in which this file has the name of the library

import onnxruntime  # noqa: E402
import torch  # noqa: E402


def run(name: str, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The outputs of a graph."""
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    named = {each.name: given.numpy() for each, given in zip(session.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(each) for each in session.run(None, named)]


folder, expected = Path(sys.argv[1]) / "onnx", torch.load(sys.argv[2])
inputs, outputs = expected["inputs"], expected["outputs"]
difference = float((run("prompt", inputs)[0] - outputs).abs().max())
if (folder / "decode.onnx").is_file():
    _, *state = run("prompt", (*inputs[:-1], inputs[-1][:, :-1]))
    step = run("decode", (inputs[-1][:, -1:], *state))[0]
    difference = max(difference, float((step - outputs[:, -1:]).abs().max()))
print(json.dumps({"difference": difference}))
