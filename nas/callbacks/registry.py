"""Every callback by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from nas.registry import Registry, Thing

registry = Registry("callback", "nas.callbacks", given=("folder", "about"))


class Callback(Protocol):
    """Constructed as `cls(folder, about)`. folder: where it may write. about: the name and settings of the training."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record numbers after `step` steps."""

    def close(self) -> None:
        """Called when the training has ended."""


def callback(name: str) -> Callable[[Thing], Thing]:
    """Register a callback class as `name`."""
    return registry.register(name)


def make(name: str, folder: Path, about: Mapping[str, Any]) -> Callback:
    """The callback called `name`. Raises UsageError with the nearest name, NasError if its library is missing."""
    return registry.make(name, {"folder": folder, "about": about}, {})
