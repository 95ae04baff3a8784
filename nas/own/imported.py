"""What a search uses that its user has defined: tasks, objectives, blocks and parts of a recipe from other packages.

Another process has to import the modules that define them. It cannot import a script or a notebook.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nas.config.schema import SearchConfig
from nas.criteria.registry import registry as criteria
from nas.objectives.registry import registry as objectives
from nas.own.source import PREFIX
from nas.tasks.registry import registry as tasks
from nas.training.optimisers.registry import registry as optimisers
from nas.training.schedules.registry import registry as schedules
from searchspace.registry import block_types

REGISTRIES = (tasks, objectives, criteria, optimisers, schedules)


@dataclass(frozen=True)
class Own:
    """modules: those to import, by name. local: the names that are defined in a script or a notebook."""

    modules: tuple[str, ...]
    local: tuple[str, ...]


def own(config: SearchConfig) -> Own:
    """What the units of `config` need besides this package and the text of the user's files."""
    written = config.model_dump(mode="json", include={"space", "task", "objectives", "recipe", "baselines", "finals"})
    words = set(re.findall(r"\w+", json.dumps(written)))
    used = {name: module for name, module in _defined() if set(re.findall(r"\w+", name)) <= words}
    local = {name for name, module in used.items() if not _is_importable(module)}
    return Own(tuple(sorted({used[name] for name in used.keys() - local})), tuple(sorted(local)))


def _defined() -> Iterator[tuple[str, str]]:
    """The names of what other packages have registered, each with its module."""
    for registry in REGISTRIES:
        for name in registry.names():
            if not (module := registry.find(name).__module__).startswith(f"{registry.package}."):
                yield name, module
    for name, kind in block_types().items():
        if not (module := kind.module.__module__).startswith(("searchspace.", PREFIX)):
            yield name, module


def _is_importable(module: str) -> bool:
    try:
        return module != "__main__" and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # it was made by hand, or its package is gone
        return False
