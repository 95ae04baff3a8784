"""An implementation made by `torch.compile` from plain PyTorch code."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

from kernels.dispatch.registry import Implementation, Problem

COMPILERS = ("c++", "g++", "clang++")
LIMIT = 64  # shapes; beyond torch's own limit of 8 it would silently run code that is not compiled


@cache
def _made(definition: Callable[..., Any]) -> Callable[..., Any]:
    limited = "recompile_limit" in inspect.signature(torch.compile).parameters  # only newer torch has it
    limits: dict[str, Any] = {"recompile_limit": LIMIT} if limited else {}
    # Code for open sizes can take many times as long as the code that was measured for fixed sizes.
    return torch.compile(definition, dynamic=False, **limits)


def compiled(definition: Callable[..., Any]) -> Implementation:
    """`definition`, compiled separately for each shape, so that only tuned shapes use it."""

    @wraps(definition)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Inside another trace it is compiled together with the surrounding code.
        return (definition if torch.compiler.is_compiling() else _made(definition))(*args, **kwargs)

    return Implementation("compiled", call, refuses=_needs_compiler, builds=True)


def _needs_compiler(problem: Problem) -> str | None:
    if problem.device == "cpu" and not _cpp():
        return "torch.compile needs a C++ compiler for a CPU"
    return None if problem.device in ("cpu", "cuda") else f"torch.compile is not used for {problem.device}"


@cache
def _cpp() -> bool:
    return any(shutil.which(name) for name in COMPILERS)
