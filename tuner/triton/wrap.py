"""A kernel of `tuner.tune` inside `torch.library.triton_op`, and in traces by `torch.export` and `make_fx`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tuner.triton.compile_trace import described, settings_of_trace
from tuner.triton.tuned_kernel import TunedKernel


class WrappedKernel:
    """Launches like the kernel; in a trace the launch becomes a node of the graph."""

    def __init__(self, kernel: TunedKernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch on `grid`. Raises as the kernel does, and NotImplementedError if a traced configuration has a hook."""
        kernel = self.kernel
        if torch.compiler.is_compiling() or not _is_traced():
            return kernel[grid](*args, **kwargs)
        arguments = described({**dict(zip(kernel.arg_names, args)), **kwargs})
        with _disable_current_modes():  # the look-up is no part of the trace
            settings = settings_of_trace(kernel.number, arguments)
        return torch.library.wrap_triton(kernel.fn)[grid](*args, **kwargs, **dict(settings))


def wrap_triton(kernel: TunedKernel) -> WrappedKernel:
    """As `torch.library.wrap_triton`, for a kernel of `tuner.tune`: `wrap_triton(kernel)[grid](...)`.

    Raises TypeError for any other object.
    """
    if not isinstance(kernel, TunedKernel):
        raise TypeError(f"wrap_triton takes a kernel of tuner.tune, but got {type(kernel).__name__}.")
    return WrappedKernel(kernel)


def _is_traced() -> bool:
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None
