"""Every scheduler by name, found by itself: a module of this package registers what it defines with `@scheduler`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nas.catalogue import Catalogue, Class
from nas.schedulers.contract import Scheduler

catalogue = Catalogue("scheduler", "nas.schedulers")


def scheduler(name: str) -> Callable[[Class], Class]:
    """Register a scheduler class as `name`; its keyword-only parameters are its options."""
    return catalogue.register(name)


def schedulers() -> list[str]:
    """The names of all schedulers, sorted."""
    return catalogue.names()


def make(name: str, /, **options: Any) -> Scheduler:
    """The scheduler `name`. Raises UsageError for a name, an option or a value that it does not know."""
    return catalogue.make(name, {}, options)
