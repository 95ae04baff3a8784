"""Runs the package of AOTInductor in the folder `aotinductor`."""

import json
import sys
from pathlib import Path

for hidden in ("nas", "searchspace", "kernels", "tuner"):
    sys.modules[hidden] = None  # type: ignore[assignment]
sys.path.pop(0)  # this folder, whose files have the names of libraries

import torch  # noqa: E402

folder, expected = Path(sys.argv[1]) / "aotinductor", torch.load(sys.argv[2])
found = torch._inductor.aoti_load_package(str(folder / "model.pt2"))(*expected["inputs"])
outputs = found if isinstance(found, torch.Tensor) else found[0]  # a model that streams also gives its state
print(json.dumps({"difference": float((outputs - expected["outputs"]).abs().max())}))
