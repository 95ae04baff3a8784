"""Rebuilds the model from architecture.yaml and model.safetensors with this package, and measures it again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import nas
from nas.errors import UsageError
from nas.exports import header
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost


def check(folder: Path, expected: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, torch.Tensor]]]:
    """The difference, parameters, FLOPs, the hash, recorded and new latencies. See `nas.exports.checks`."""
    path = folder / "architecture.yaml"
    model = nas.load(folder).model  # first: it runs the user's own blocks
    about, architecture = header.read(path), Architecture.load(path)
    with torch.inference_mode():
        outputs = model(*expected["inputs"])
    shape = header.at_exported_depth(path, Shape(), length=None)
    numbers = {
        "difference": float((outputs - expected["outputs"]).abs().max()),
        "parameters": sum(each.numel() for each in model.parameters()),
        "flops": cost(architecture, shape).numbers()["flops"],
        "hash": architecture.hash,
        "latency": _latency(about.get("latency") or {}, architecture, shape),
    }
    return numbers, [model.state_dict()]


def _latency(then: Mapping[str, Any], architecture: Architecture, shape: Shape) -> dict[str, dict[str, float]]:
    """The recorded latencies and those measured now; empty on another device."""
    if not then:
        return {}
    from nas.objectives.latency import Latency  # it takes half a second

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
