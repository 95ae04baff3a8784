"""Runs the program of torch.export in the folder `torch`, and the decode step for the last symbol."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def check(folder: Path, expected: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, torch.Tensor]]]:
    """The difference, also that of the last step, and the parameters. See `nas.exports.checks`."""
    inputs, outputs = expected["inputs"], expected["outputs"]
    net = torch.export.load(folder / "torch/program.pt2").module()
    parts, decode = [net.state_dict()], folder / "torch/decode.pt2"
    with torch.inference_mode():
        found = net(*inputs)
        found = found[0] if isinstance(found, tuple) else found  # a model that streams also gives its state
        difference = float((found - outputs).abs().max())
        if decode.is_file():
            _, *state = net(*inputs[:-1], inputs[-1][:, :-1])
            step = torch.export.load(decode).module()
            parts.append(step.state_dict())
            last = step(inputs[-1][:, -1:], *state)[0]
            difference = max(difference, float((last - outputs[:, -1:]).abs().max()))
    parameters = sum(each.numel() for each in net.parameters())
    return {"difference": difference, "parameters": parameters}, parts
