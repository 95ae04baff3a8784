"""A kernel of `tuner.tune` in a trace: by torch.compile, by `torch.export` and `make_fx`, in `torch.library.triton_op`.

In a trace tensors have shapes and dtypes but no values, so nothing can be measured. The settings of a kernel are looked
up outside the trace and are constants inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernels.dispatch.tuned import hint

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


class WrappedKernel:
    """Launches like the kernel; in a trace the launch becomes a node of the graph."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch on `grid`. Raises as the kernel does, and NotImplementedError if a traced configuration has a hook."""
        from torch.fx.experimental.proxy_tensor import get_proxy_mode

        kernel = self.kernel
        if torch.compiler.is_compiling() or get_proxy_mode() is None:
            return kernel[grid](*args, **kwargs)
        arguments = described({**dict(zip(kernel.arg_names, args)), **kwargs})
        with _disable_current_modes():  # the look-up is no part of the trace
            settings = settings_of_trace(kernel.number, arguments)
        return torch.library.wrap_triton(kernel.fn)[grid](*args, **kwargs, **dict(settings))


def wrap_triton(kernel: Any) -> WrappedKernel:
    """As `torch.library.wrap_triton`, for a kernel of `tuner.tune`: `wrap_triton(kernel)[grid](...)`.

    Raises TypeError for any other object.
    """
    if not hasattr(kernel, "of_trace"):
        raise TypeError(f"wrap_triton takes a kernel of tuner.tune, but got {type(kernel).__name__}.")
    return WrappedKernel(kernel)
