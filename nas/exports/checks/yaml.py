"""Rebuilds the model from architecture.yaml and model.safetensors with this package, and measures it again."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, in which this file has the name of a library

import torch


def latency(then: dict, architecture: Any, shape: Any) -> dict:
    """What was measured then, and now; empty on another device."""
    from nas.errors import UsageError
    from nas.objectives.latency import Latency

    found = {}
    for name, each in then.items():
        setting = {key: each[key] for key in ("phase", "batch", "length", "threads")}
        now = Latency(shape, device=each["on"], method="measured", **setting)
        try:
            here = now.predictor.table.device.key
        except UsageError:  # such as that of a GPU that this machine does not have
            continue
        if here == each["device"]["key"]:
            measured = now.latency(architecture)
            found[name] = {"then": each["milliseconds"], "now": measured.milliseconds}
    return found


def main() -> None:
    import nas
    from nas.exports import header
    from nas.exports.header import at_exported_depth
    from searchspace.cost import Shape
    from searchspace.model.architecture import Architecture
    from searchspace.model.build import cost

    folder, expected = Path(sys.argv[1]), torch.load(sys.argv[2])
    path = folder / "architecture.yaml"
    model = nas.load(folder).model  # first: it runs the user's own blocks
    about, architecture = header.read(path), Architecture.load(path)
    with torch.inference_mode():
        outputs = model(*expected["inputs"])
    torch.save([model.state_dict()], sys.argv[3])
    shape = at_exported_depth(path, Shape(), length=None)
    print(
        json.dumps(
            {
                "difference": float((outputs - expected["outputs"]).abs().max()),
                "parameters": sum(each.numel() for each in model.parameters()),
                "flops": cost(architecture, shape).numbers()["flops"],
                "hash": architecture.hash,
                "latency": latency(about.get("latency") or {}, architecture, shape),
            }
        )
    )


main()
