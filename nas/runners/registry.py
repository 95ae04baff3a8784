"""The registry of runners: every module of this package registers the options of the runner that it defines.

The registered thing is a class whose fields are the options in a search file, and whose `start` gives the runner. So a
search file is checked without importing what the runner needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from nas.registry import Registry, Thing
from nas.runners.contract import Runner

registry = Registry("runner", "nas.runners")


class Options(Protocol):
    """The options of a runner. Constructed as `cls(**options)`."""

    def start(self) -> Runner:
        """The runner, ready for units. Raises NasError if it cannot be started here."""


def runner(name: str) -> Callable[[Thing], Thing]:
    """Register the options of the runner `name`."""
    return registry.register(name)


def options(name: str, written: Mapping[str, Any]) -> Options:
    """The checked options of the runner `name`. Raises UsageError for an unknown name or an invalid option."""
    return registry.make(name, {}, written)
