"""Train without torch's compiler: importing it takes 2 s of CPU time in each process, and no unit needs it.

Some functions of torch import the compiler only to configure it: `torch.use_deterministic_algorithms`, methods of
optimisers, and the kernels of operators, which must not be compiled. If the compiler is already imported, nothing here
differs from torch. If a version of torch has different private parts, the compiler is imported as usual. The code of
optimisers that are neither torch's nor ours is not changed.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache, wraps
from typing import Any

import torch
from torch.optim import Optimizer

OURS = ("torch.optim.", "nas.training.")  # whose steps have no decorators but torch's own
_METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool) -> None:
    """Same as the function of torch with this name, without importing the compiler."""
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    else:
        torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)


def call_methods_directly() -> None:
    """Run the methods of optimisers directly; torch would ask the compiler for a version that it skips."""
    if "torch._dynamo" not in sys.modules:
        for name in _METHODS:
            method: Any = getattr(getattr(Optimizer, name), "__wrapped__", None)
            if method is not None and not hasattr(method, "__dynamo_disable"):
                method.__dynamo_disable = method  # where torch looks for that form


def call_kernels_directly() -> None:
    """Run the kernels of the operators that are defined so far directly, without the compiler."""
    defined: Any = getattr(torch._library.custom_ops, "OPDEFS", {})
    for operator in [each for name, each in defined.items() if name.startswith("tessera::")]:
        kernels: Any = getattr(operator, "_backend_fns", {})
        for device, kernel in kernels.items():
            if hasattr(kernel, "__wrapped__") and not hasattr(kernel, "directly"):
                kernels[device] = _until_imported(kernel)


def _until_imported(kernel: Any) -> Any:
    written = kernel.__wrapped__

    @wraps(written)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (kernel if "torch._dynamo" in sys.modules else written)(*args, **kwargs)

    call.directly = True  # type: ignore[attr-defined]
    return call


def step_directly(optimiser: Optimizer) -> Optimizer:
    """The same optimiser, whose `step` does not tell the compiler to leave it out of a graph."""
    kind: Any = type(optimiser)
    known = kind.__module__.startswith(OURS) and hasattr(Optimizer, "profile_hook_step")
    if known and "torch._dynamo" not in sys.modules and not optimiser.defaults.get("differentiable"):
        optimiser.__class__ = _stepping_directly(kind)
    return optimiser


@cache
def _stepping_directly(kind: type[Optimizer]) -> type[Optimizer]:
    step: Any = Optimizer.profile_hook_step(torch.no_grad()(inspect.unwrap(kind.step)))  # with the hooks of users
    step.hooked = True  # torch would add the hooks a second time
    return type(kind.__name__, (kind,), {"step": step, "__module__": kind.__module__})
