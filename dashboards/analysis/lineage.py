"""The lineage of trials: parents, children, ancestors, and what each mutation changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.numbers import FIRST_FINAL

if TYPE_CHECKING:
    from nas.store import Reader, Study

MOST_ANCESTORS = 60
MOST_CHILDREN = 40
OVERLAP = 100  # trials that are read again, because a trial may be stored after one with a higher number
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

    def generation(self) -> dict[int, int]:
        """The generation of each trial: 0 without parents, else one more than the highest of its parents."""
        found: dict[int, int] = {}
        for number in sorted(self.origins):  # parents have lower numbers
            known = [found[parent] for parent in self.parents(number) if parent in found]
            found[number] = max(known) + 1 if known else 0
        return found

    def descendants(self, number: int, most: int = MOST_CHILDREN) -> list[int]:
        """The trials that descend from `number`, nearest first, at most `most`."""
        found: dict[int, None] = {}
        left = list(self.children.get(number, ()))
        while left and len(found) < most:
            each = left.pop(0)
            if each not in found:
                found[each] = None
                left += self.children.get(each, ())
        return list(found)


def lineage(store: Reader, study: Study, before: Lineage | None = None) -> Lineage:
    """The lineage of the trials of `study`. before: an earlier result, so that only what is new is read."""
    known = dict(before.origins) if before else {}
    first = max(0, max((number for number in known if number < FIRST_FINAL), default=0) - OVERLAP)
    shared: dict[str, str] = {}  # equal names of operators share one object
    return Lineage(
        known
        | {
            number: Origin(shared.setdefault(operator, operator), tuple(parents or ()))
            for number, operator, parents in store.origins(study.id, first)
        }
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
