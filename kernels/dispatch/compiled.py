"""What PyTorch makes of its own code with `torch.compile`: an implementation that costs no line."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

from kernels.dispatch.registry import Implementation, Problem

COMPILERS = ("c++", "g++", "clang++")
LIMIT = 64  # shapes; beyond torch's own limit of 8 it would quietly run what was never compiled


@cache
def _made(definition: Callable[..., Any]) -> Callable[..., Any]:
    limited = "recompile_limit" in inspect.signature(torch.compile).parameters  # of newer torch alone
    limits: dict[str, Any] = {"recompile_limit": LIMIT} if limited else {}
    # Code for sizes that are left open can take many times as long as what was measured for these.
    return torch.compile(definition, dynamic=False, **limits)


def compiled(definition: Callable[..., Any]) -> Implementation:
    """`definition`, compiled anew for each shape; so it serves those alone that were tuned."""

    @wraps(definition)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Inside another trace it is compiled with what surrounds it.
        return (definition if torch.compiler.is_compiling() else _made(definition))(*args, **kwargs)

    return Implementation("compiled", call, refuses=_needs_compiler, builds=True)


def _needs_compiler(problem: Problem) -> str | None:
    if problem.device == "cpu" and not _cpp():
        return "torch.compile needs a C++ compiler for a CPU"
    return None if problem.device in ("cpu", "cuda") else f"nothing is compiled for {problem.device}"


@cache
def _cpp() -> bool:
    return any(shutil.which(name) for name in COMPILERS)
