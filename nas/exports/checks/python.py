"""Loads model.py and model.safetensors with only torch."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def check(folder: Path, expected: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, torch.Tensor]]]:
    """The difference and the parameters. See `nas.exports.checks`."""
    found = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["model"] = module
    found.loader.exec_module(module)
    net = module.load_weights(module.model(), str(folder / "model.safetensors"))
    with torch.inference_mode():
        outputs = net(*expected["inputs"])
    parameters = sum(each.numel() for each in net.parameters())
    difference = float((outputs - expected["outputs"]).abs().max())
    return {"difference": difference, "parameters": parameters}, [net.state_dict()]
