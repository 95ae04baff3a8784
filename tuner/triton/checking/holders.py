"""Finds the tensors that a kernel's arguments hold, and replaces them by others.

An argument may hold tensors inside: a tuple, a list, a mapping, a dataclass, a TMA descriptor of Triton. All of these
are rebuilt around other tensors. An object of any other class is searched, but it keeps its tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

DEEPEST = 4  # levels of objects inside objects


class UnknownMemory(Exception):
    """An argument points to memory that cannot be found, so it cannot be saved, restored or compared."""


def tensors(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Tensor, bool]]:
    """(name, tensor, whether `replaced` can replace it) for all tensors that the arguments hold.

    Raises UnknownMemory if an argument points to memory without being a tensor.
    """
    for name, value in arguments.items():
        yield from _inside(name, value, True, 0, set())


def typed(name: str, value: Any) -> list[tuple[str, Any]]:
    """An argument with its name if it has a dtype, else the tensors that it holds, with theirs."""
    if hasattr(value, "dtype"):
        return [(name, value)]
    try:
        return [] if _is_plain(value) else [(inner, tensor) for inner, tensor, _ in tensors({name: value})]
    except UnknownMemory:
        return []


def _inside(name: str, value: Any, replaceable: bool, depth: int, seen: set[int]) -> Iterator[tuple[str, Tensor, bool]]:
    if isinstance(value, Tensor):
        yield name, value, replaceable
        return
    if _is_plain(value) or depth > DEEPEST or id(value) in seen:
        return
    seen.add(id(value))
    known = _parts(value)
    if known is None and hasattr(value, "__dict__"):
        known, replaceable = vars(value), False
    found = [each for key, part in (known or {}).items() for each in _part(name, key, part, replaceable, depth, seen)]
    if not found and any(hasattr(value, each) for each in ("data_ptr", "tma_desc_cpu_ptr")):
        raise UnknownMemory(f"{name} is a {type(value).__name__}, which points to memory that cannot be found")
    yield from found


def _part(name: str, key: Any, part: Any, replaceable: bool, depth: int, seen: set[int]) -> Any:
    return _inside(f"{name}.{key}", part, replaceable, depth + 1, seen)


def replaced(value: Any, new: Callable[[Tensor], Tensor]) -> Any:
    """`value` with every replaceable tensor in it replaced; a holder without tensors is returned unchanged."""
    if isinstance(value, Tensor):
        return new(value)
    known = None if _is_plain(value) else _parts(value)
    if not known:
        return value
    made = {key: replaced(part, new) for key, part in known.items()}
    if all(made[key] is known[key] for key in known):
        return value
    if isinstance(value, Mapping):
        return type(value)(made)  # type: ignore[call-arg]
    if isinstance(value, tuple):
        return type(value)(*made.values()) if hasattr(value, "_fields") else type(value)(made.values())
    if isinstance(value, list):
        return list(made.values())
    return _copy_with(value, made)


def _copy_with(value: Any, made: Mapping[str, Any]) -> Any:
    """A copy of a dataclass with other values, without running its checks, which may not hold for a copy."""
    copy = object.__new__(type(value))
    for name, part in {**getattr(value, "__dict__", {}), **made}.items():
        object.__setattr__(copy, name, part)
    return copy


def _parts(value: Any) -> dict[Any, Any] | None:
    """The values that a holder is rebuilt from, by key; None for an object of any other class."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if hasattr(value, each.name)}
    return None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | bytes | type) or callable(value)
