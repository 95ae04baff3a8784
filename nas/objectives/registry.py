"""The registry of objectives: every module of this package registers the objectives that it defines.

An objective is written `flops`, `{flops: {option: value}}`, or for any metric of a task `{metric: accuracy, direction:
maximize}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nas.errors import UsageError
from nas.objectives.contract import Objective
from nas.registry import Registry, nearest
from searchspace.cost import Shape

Spec = str | Mapping[str, Any]
METRIC = "metric"

registry = Registry("objective", "nas.objectives", given=("shape",))


def objective(name: str) -> Callable[[type[Objective]], type[Objective]]:
    """Register an objective class as `name`. The parameters of its constructor after `shape` are its options."""

    def register(cls: type[Objective]) -> type[Objective]:
        cls.name = name
        return registry.register(name)(cls)

    return register


def names() -> list[str]:
    """The names of the objectives, sorted."""
    return sorted(set(registry.names()) - {METRIC})


def make(spec: Spec, shape: Shape) -> Objective:
    """The objective that `spec` describes, for inputs of `shape`.

    Raises UsageError for an unknown name, with the nearest valid one, and for an invalid option.
    """
    name, options = _parse(spec)
    if spec == METRIC or (name != METRIC and name not in names()):
        known = ", ".join(names())
        near = nearest(name, names())
        raise UsageError(
            f"No objective is called {name!r}.{near} Known: {known}, or {{metric: NAME, direction: minimize}} for any "
            "metric of the task."
        )
    return registry.make(name, {"shape": shape}, options)


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
