"""Builds modules without initial weights: for the names of their parameters and their capabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def undrawn() -> Iterator[None]:
    """Inside, the functions of `torch.nn.init` leave parameters unchanged: nothing is written to their memory.

    On the device `meta`, PyTorch imports its compiler for the first operation, which takes 1.5 s of CPU.
    """
    with torch.random.fork_rng(devices=[]), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(function, "__module__", None) == "torch.nn.init":
            return given["tensor"] if "tensor" in given else args[0]
        return function(*args, **given)
