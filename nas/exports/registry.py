"""Every export format by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from nas.exports.winner import Winner
from nas.registry import Registry, Thing

registry = Registry("export format", "nas.exports.formats")


class Format(Protocol):
    """A way to write a trial. Keyword parameters of the constructor are its options."""

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """The files to write, where `path` is that of the YAML file. Raises NasError if something is missing."""


def export_format(name: str) -> Callable[[Thing], Thing]:
    """Register a format class as `name`."""
    return registry.register(name)


def make(name: str) -> Format:
    """The format called `name`. Raises UsageError with the nearest name."""
    return registry.make(name, {}, {})
