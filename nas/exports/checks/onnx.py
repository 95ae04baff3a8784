"""Runs prompt.onnx in the folder `onnx` with ONNX Runtime."""

import json
import sys
from pathlib import Path

for hidden in ("nas", "searchspace", "kernels", "tuner"):
    sys.modules[hidden] = None  # type: ignore[assignment]
sys.path.pop(0)  # this folder, in which this file has the name of the library

import onnxruntime  # noqa: E402
import torch  # noqa: E402

folder, expected = Path(sys.argv[1]) / "onnx", torch.load(sys.argv[2])
session = onnxruntime.InferenceSession(folder / "prompt.onnx", providers=["CPUExecutionProvider"])
names = [each.name for each in session.get_inputs()]
outputs = torch.from_numpy(session.run(None, dict(zip(names, (each.numpy() for each in expected["inputs"]))))[0])
print(json.dumps({"difference": float((outputs - expected["outputs"]).abs().max())}))
