"""A kernel of `tuner.tune` in a trace of torch.compile: its settings are looked up outside the trace and are constants
inside.

In a trace tensors have shapes and dtypes but no values, so nothing can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import torch

from kernels.dispatch.traced import hint

_kernels: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by number: torch 2.11 takes no object as a constant


def numbered(kernel: Any) -> int:
    """The number under which a trace finds `kernel`."""
    number = id(kernel)
    _kernels[number] = kernel
    return number


def usual_device() -> str:
    """The device of a kernel that has no tensors among its arguments."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def described(arguments: Mapping[str, Any]) -> tuple[tuple, ...]:
    """The arguments of a traced call as constants: a tensor as its shape, dtype and device; a symbolic size as its
    value in this trace."""
    found: list[tuple] = []
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            shape = tuple([hint(size) for size in value.shape])
            found.append((name, shape, value.dtype, str(value.device)))
        elif isinstance(value, int) and not isinstance(value, bool):
            found.append((name, hint(value)))
        else:
            found.append((name, value))
    return tuple(found)


def settings_of_trace(number: int, described: tuple[tuple, ...]) -> tuple[tuple[str, Any], ...]:
    """The settings that the call of the kernel with this number uses.

    They are looked up outside of the trace, which would otherwise guard on everything that the look-up reads. Raises
    NotImplementedError if the configuration has a hook, which a trace cannot call.
    """
    arguments = {
        name: torch.empty(more[0], dtype=more[1], device="meta") if len(more) > 1 else more[0]
        for name, *more in described
    }
    devices = [each[3] for each in described if len(each) > 2]
    kernel = _kernels[number]
    config = kernel.of_trace(arguments, devices[0] if devices else usual_device()).config
    if config.pre_hook is not None:
        raise NotImplementedError(f"{kernel.name}: torch.compile supports no pre_hook of a configuration: {config}.")
    settings = config.all_kwargs()
    if settings.get("num_ctas") == 1:  # the default; torch.compile accepts no other value
        del settings["num_ctas"]
    return tuple(settings.items())


# `torch.compiler.assume_constant_result` sets this; calling it would load the compiler together with this module.
settings_of_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]
