"""Which dtype an operation computes in where torch.autocast is on, and how to leave autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def computed(x: torch.Tensor) -> torch.dtype:
    """The dtype of matrix products with x: that of autocast if it is on, else that of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def without_autocast(device: str) -> AbstractContextManager[object]:
    """A context in which autocast is off for a type of device.

    If it is off already, this does nothing: an exported graph then has no region with settings of its own, which
    other formats cannot express.
    """
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
