"""The registry of optimisers.

An optimiser is a function of the model. Its keyword-only parameters are its options; `learning_rate` is the highest
rate of the schedule. Each parameter group starts with its own highest rate as `lr`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from nas.registry import Registry, Thing
from nas.training.compiler import call_kernels_directly, call_methods_directly, step_directly

registry = Registry("optimiser", "nas.training.optimisers", given=("model",))


def optimiser(name: str) -> Callable[[Thing], Thing]:
    """Register a function as the optimiser `name`."""
    return registry.register(name)


def optimisers() -> list[str]:
    """The names of all optimisers, sorted."""
    return registry.names()


def make(name: str, model: nn.Module, options: Mapping[str, Any] | None = None) -> torch.optim.Optimizer:
    """The optimiser `name` for the parameters of `model`. Raises UsageError for an unknown name or invalid option."""
    call_methods_directly()
    call_kernels_directly()  # of the operators that the model uses
    return step_directly(registry.make(name, {"model": model}, options or {}))


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trainable parameters in two lists: those that decay, and norms, biases and embeddings, which do not."""
    embeddings = {
        parameter
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups[parameter.ndim >= 2 and parameter not in embeddings].append(parameter)
    return groups[True], groups[False]


def decaying(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: matrices with `weight_decay`, and norms, biases and embeddings without it."""
    matrices, others = split(model)
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
