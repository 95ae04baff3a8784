"""Operators of ours, `torch.ops.tessera.x`, and formulas of their FLOPs.

Formulas are registered when `torch.utils.flop_counter` is imported: to import it here would import Triton, which takes
0.4 s in each process that only reads a space.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch
from torch.library import CustomOpDef

COUNTER = "torch.utils.flop_counter"
Formula = Callable[..., int]
_waiting: list[tuple[Any, Formula]] = []


def operator(name: str) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """A decorator: the function becomes the operator `torch.ops.tessera.NAME`, which changes no argument."""
    return torch.library.custom_op(f"tessera::{name}", mutates_args=())


def flops_of(operator: Any) -> Callable[[Formula], Formula]:
    """A decorator: counts `operator`, ours or one of `torch.ops`, by a function of the shapes of its arguments."""
    packet = operator._opoverload.overloadpacket if isinstance(operator, CustomOpDef) else operator

    def register(formula: Formula) -> Formula:
        _waiting.append((packet, formula))
        if COUNTER in sys.modules:
            _tell(sys.modules[COUNTER])
        return formula

    return register


def _tell(counter: ModuleType) -> None:
    while _waiting:
        operator, formula = _waiting.pop()
        counter.register_flop_formula(operator)(formula)


class _Finder(MetaPathFinder):
    """Finds the counter as usual, and registers the formulas once it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name == COUNTER else None
        if found is None or found.loader is None:
            return None
        loader, execute = found.loader, found.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            _tell(module)

        loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return found


if COUNTER not in sys.modules:
    sys.meta_path.insert(0, _Finder())
