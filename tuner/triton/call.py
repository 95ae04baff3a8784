"""The caller's part of a kernel's call: its arguments and its grid.

A mistake there is raised to the caller before anything is measured, and is never counted against a configuration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tuner.outcome import CallFailed
from tuner.triton.case import Launch


def check_call(launch: Launch, function: Callable[..., Any], config: Any) -> None:
    """Raises TypeError if the call lacks an argument, ValueError if it gives one that is tuned, and what the grid
    function and the heuristics raise for `config`."""
    settings = config.all_kwargs()
    if twice := sorted(settings.keys() & launch.arguments.keys()):
        raise ValueError(f"{', '.join(twice)} is given in the call, and is there to be tuned.")
    parameters = inspect.signature(function).parameters
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    named = {**defaults, **launch.arguments, **settings}
    for name, value in heuristics(launch.kernel).items():
        named[name] = value(named)
    if missing := [name for name in parameters if name not in named]:
        raise TypeError(f"{function.__name__}() lacks the argument {', '.join(map(repr, missing))}.")
    if callable(launch.grid):
        launch.grid({name: named[name] for name in parameters})


def heuristics(kernel: Any) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """The functions of `triton.heuristics` around a kernel, by the name of the argument that each computes."""
    found: dict[str, Callable[..., Any]] = {}
    while kernel is not None and not inspect.isfunction(kernel):
        found |= getattr(kernel, "values", None) or {}
        kernel = getattr(kernel, "fn", None)
    return found


def with_blame(launch: Launch) -> Launch:
    """The same launch, whose grid function raises CallFailed for any error of its own."""
    if not callable(launch.grid):
        return launch
    grid = launch.grid

    def blamed(meta: Any) -> Any:
        try:
            return grid(meta)
        except Exception as error:
            raise CallFailed(error) from error

    return replace(launch, grid=blamed)
