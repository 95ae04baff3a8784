"""FLOP formulas of our operators, registered when `torch.utils.flop_counter` is imported.

To import the counter here would import Triton: 0.4 s for each process that only reads a space.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

COUNTER = "torch.utils.flop_counter"
Formula = Callable[..., int]
_waiting: list[tuple[Any, Formula]] = []


def flops_of(operator: Any) -> Callable[[Formula], Formula]:
    """A decorator: counts `operator`, a `torch.ops.tessera.x`, by a function of the shapes of its arguments."""

    def register(formula: Formula) -> Formula:
        _waiting.append((operator, formula))
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
