"""Every scheduler by name, found by itself: a module of this package registers what it defines with `@scheduler`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nas.registry import Registry, Thing
from nas.schedulers.contract import Scheduler

registry = Registry("scheduler", "nas.schedulers")


def scheduler(name: str) -> Callable[[Thing], Thing]:
    """Register a scheduler class as `name`; its keyword-only parameters are its options."""
    return registry.register(name)


def schedulers() -> list[str]:
    """The names of all schedulers, sorted."""
    return registry.names()


def make(name: str, /, **options: Any) -> Scheduler:
    """The scheduler `name`. Raises UsageError for a name, an option or a value that it does not know."""
    return registry.make(name, {}, options)
