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
from tuner.triton.jit_source import function_of


def check_call(launch: Launch, function: Callable[..., Any], config: Any) -> None:
    """Raises TypeError if the call lacks an argument or the grid is no tuple, ValueError if the call gives an argument
    that is tuned, and what the grid function and the heuristics raise for `config`."""
    settings = config.all_kwargs()
    if twice := sorted(settings.keys() & launch.arguments.keys()):
        raise ValueError(f"{', '.join(twice)} is given in the call, and is there to be tuned.")
    named = _named(launch, function, config)
    if missing := [name for name in inspect.signature(function).parameters if name not in named]:
        raise TypeError(f"{function.__name__}() lacks the argument {', '.join(map(repr, missing))}.")
    grid = grid_of(launch, config)
    if not (hasattr(grid, "__len__") and 1 <= len(grid) <= 3):
        raise TypeError(f"the grid of {function.__name__} must be a tuple of 1 to 3 numbers, but is {grid!r}.")


def grid_of(launch: Launch, config: Any) -> Any:
    """The grid of a call with `config`. Raises what the grid function and the heuristics raise."""
    if not callable(launch.grid):
        return launch.grid
    function = function_of(launch.kernel)
    named = _named(launch, function, config)
    return launch.grid({name: named[name] for name in inspect.signature(function).parameters})


def _named(launch: Launch, function: Callable[..., Any], config: Any) -> dict[str, Any]:
    """All arguments of the kernel by name, as far as they are given."""
    parameters = inspect.signature(function).parameters
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    named = {**defaults, **launch.arguments, **config.all_kwargs()}
    for name, value in heuristics(launch.kernel).items():
        named[name] = value(named)
    return named


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
