"""The registry of schedulers: every module of this package registers the schedulers that it defines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nas.registry import Registry, Thing
from nas.schedulers.contract import Scheduler

registry = Registry("scheduler", "nas.schedulers", offered=("objectives",))


def scheduler(name: str) -> Callable[[Thing], Thing]:
    """Register a scheduler class as `name`. Its keyword parameters are its options."""
    return registry.register(name)


def schedulers() -> list[str]:
    """The names of all schedulers, sorted."""
    return registry.names()


def make(name: str, objectives: Mapping[str, str] | None = None, /, **options: Any) -> Scheduler:
    """The scheduler `name`. Raises UsageError for an unknown name or an invalid option.

    objectives: {name: direction} of the search, in their order; None if the scheduler is only to forecast.
    """
    return registry.make(name, {"objectives": objectives}, options)
