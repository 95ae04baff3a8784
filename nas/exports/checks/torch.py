"""Runs the program of torch.export in the folder `torch`."""

import json
import sys
from pathlib import Path

for hidden in ("nas", "searchspace", "kernels", "tuner"):
    sys.modules[hidden] = None  # type: ignore[assignment]
sys.path.pop(0)  # this folder, in which this file has the name of the library

import torch  # noqa: E402

folder, expected = Path(sys.argv[1]) / "torch", torch.load(sys.argv[2])
net = torch.export.load(folder / "program.pt2").module()
with torch.inference_mode():
    outputs = net(*expected["inputs"])
if isinstance(outputs, tuple):  # a model that streams also gives its state
    outputs = outputs[0]
parameters = sum(each.numel() for each in net.parameters())
print(json.dumps({"difference": float((outputs - expected["outputs"]).abs().max()), "parameters": parameters}))
