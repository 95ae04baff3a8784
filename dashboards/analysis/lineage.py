"""The lineage of trials: parents, children, ancestors, and what each mutation changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nas.store import Reader, Study

MOST_ANCESTORS = 60
MISSING = object()


@dataclass(frozen=True)
class Origin:
    """How a trial was proposed: by which operator, from which trials."""

    operator: str
    parents: tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """A hole with its values in the parent and in the child; None: the architecture does not have this hole."""

    path: str
    before: Any
    after: Any


class Lineage:
    """The parents and children of all trials of a study."""

    def __init__(self, origins: Mapping[int, Origin]):
        self.origins = origins
        self.children: dict[int, list[int]] = {}
        for number, origin in origins.items():
            for parent in origin.parents:
                self.children.setdefault(parent, []).append(number)

    def ancestors(self, number: int, most: int = MOST_ANCESTORS) -> list[int]:
        """The trials that `number` descends from, nearest first, at most `most`; without `number` itself."""
        found: dict[int, None] = {}
        left = list(self.parents(number))
        while left and len(found) < most:
            each = left.pop(0)
            if each not in found and each != number:
                found[each] = None
                left += self.parents(each)
        return list(found)

    def parents(self, number: int) -> tuple[int, ...]:
        """The trials that `number` was made from; empty if they are unknown."""
        origin = self.origins.get(number)
        return tuple(each for each in origin.parents if each in self.origins) if origin else ()


def lineage(store: Reader, study: Study) -> Lineage:
    """The lineage of the trials of `study`."""
    return Lineage(
        {number: Origin(operator, tuple(parents or ())) for number, operator, parents in store.origins(study.id)}
    )


def changed(parent: Mapping[str, Any], child: Mapping[str, Any]) -> list[Change]:
    """The holes in which two points differ."""
    paths = dict.fromkeys([*parent, *child])
    return [
        Change(path, parent.get(path), child.get(path))
        for path in paths
        if _differ(parent.get(path, MISSING), child.get(path, MISSING))
    ]


def distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """The share of all holes of two points in which they differ, from 0 to 1."""
    paths = {*a, *b}
    apart = sum(_differ(a.get(path, MISSING), b.get(path, MISSING)) for path in paths)
    return apart / len(paths) if paths else 0.0


def _differ(one: Any, other: Any) -> bool:
    """Whether two values are not the same: 1, 1.0 and true are three values, also inside lists."""
    if type(one) is not type(other):
        return True
    return repr(one) != repr(other) if isinstance(one, list | dict) else bool(one != other)
