"""Every objective by name, found by itself.

An objective is written `flops`, `{flops: {option: value}}`, or for a metric of any name `{metric: accuracy, direction:
maximize}`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import nas.objectives
from nas.errors import UsageError
from nas.objectives.contract import Objective
from searchspace.cost import Shape
from searchspace.errors import nearest

Spec = str | Mapping[str, Any]
METRIC = "metric"

_objectives: dict[str, type[Objective]] = {}


def objective(name: str) -> Callable[[type[Objective]], type[Objective]]:
    """Register an objective class under `name`."""

    def register(cls: type[Objective]) -> type[Objective]:
        cls.name = name
        _objectives[name] = cls
        return cls

    return register


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules(nas.objectives.__path__, "nas.objectives."):
        importlib.import_module(module.name)


def names() -> list[str]:
    """The names of the objectives, sorted."""
    _discover()
    return sorted(set(_objectives) - {METRIC})


def make(spec: Spec, shape: Shape) -> Objective:
    """The objective that `spec` describes; raises UsageError with the nearest valid name."""
    name, options = _parse(spec)
    known = names()
    if name not in _objectives or spec == METRIC:
        raise UsageError(
            f"No objective is called {name!r}.{nearest(name, known)} Known: {', '.join(known)}, or "
            "{metric: NAME, direction: minimize} for any metric of the task."
        )
    cls = _objectives[name]
    allowed = list(inspect.signature(cls).parameters)[1:]
    for option in options:
        if option not in allowed:
            raise UsageError(
                f"objective {name}: there is no option {option!r}.{nearest(option, allowed)} "
                f"Known: {', '.join(allowed) or 'none'}."
            )
    try:
        return cls(shape, **options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"objective {name}: {error}") from error


def _parse(spec: Spec) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, Mapping) and METRIC in spec:
        return METRIC, dict(spec)
    if isinstance(spec, Mapping) and len(spec) == 1:
        name, options = next(iter(spec.items()))
        if isinstance(name, str) and (options is None or isinstance(options, Mapping)):
            return name, dict(options or {})
    raise UsageError(f"An objective is a name, a name with its options, or a metric, but got {spec!r}.")
