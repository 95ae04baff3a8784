"""Runs the package of AOTInductor in the folder `aotinductor`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def check(folder: Path, expected: Mapping[str, Any]) -> tuple[dict[str, Any], None]:
    """The difference; a compiled package shows no weights. Arguments: see `nas.exports.checks`."""
    found = torch._inductor.aoti_load_package(str(folder / "aotinductor/model.pt2"))(*expected["inputs"])
    outputs = found if isinstance(found, torch.Tensor) else found[0]  # a model that streams also gives its state
    return {"difference": float((outputs - expected["outputs"]).abs().max())}, None
