"""Finds the tensors that a kernel's arguments hold, replaces them by others, and restores what they held.

An argument may hold tensors inside: a tuple, a list, a mapping, a dataclass, a TMA descriptor of Triton. Whole storages
are copied: a kernel gets pointers, and may write outside of the view whose pointer it got. The copies are on the
tensors' own device; if its memory is short, they are in the memory of the host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HOST = torch.device("cpu")
SHARE = 0.4  # of a device's available memory, the most that the copies for one purpose may take
PACKED = tuple(getattr(torch, name) for name in ("float4_e2m1fn_x2",) if hasattr(torch, name))
POINTERS = ("data_ptr", "tma_desc_cpu_ptr")  # methods of objects that stand for memory


class CannotCheck(Exception):
    """The tensors of a call cannot be copied, so that no configuration can be checked or undone."""


class NothingWritten(CannotCheck):
    """A call changed nothing that its arguments hold, so that a wrong result would not show. Others may show it."""


def tensors(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) for all tensors that the arguments hold. Raises CannotCheck if an argument points to other memory
    than that of its tensors."""
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            yield name, value
        elif (parts := _parts(value)) is not None:
            yield from tensors({f"{name}.{key}": part for key, part in parts.items()})
        elif any(hasattr(value, each) for each in POINTERS):
            raise CannotCheck(f"{name} is a {type(value).__name__}, which points to memory that cannot be found")


def typed(name: str, value: Any) -> list[tuple[str, Any]]:
    """An argument with its name if it has a dtype, else the tensors that it holds, with theirs."""
    if hasattr(value, "dtype"):
        return [(name, value)]
    with suppress(CannotCheck):
        return list(tensors({name: value}))
    return []


def replaced(value: Any, new: Callable[[Tensor], Tensor]) -> Any:
    """`value` with every tensor in it replaced; a holder without tensors is returned unchanged."""
    if isinstance(value, Tensor):
        return new(value)
    known = _parts(value)
    made = {key: replaced(part, new) for key, part in (known or {}).items()}
    if known is None or all(made[key] is known[key] for key in known):
        return value
    if isinstance(value, Mapping):
        return type(value)(made)  # type: ignore[call-arg]
    if isinstance(value, tuple | list):
        return type(value)(*made.values()) if hasattr(value, "_fields") else type(value)(made.values())
    copy = object.__new__(type(value))  # of a dataclass, without running its checks, which may not hold for a copy
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


def storages(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Each storage that the arguments use, as [N] of the dtype of its first tensor, by the name of that tensor.

    Raises CannotCheck as `tensors` does.
    """
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in tensors(arguments):
        if tensor.untyped_storage().nbytes():
            found.setdefault(tensor.untyped_storage().data_ptr(), (name, _flat(tensor)))
    return dict(found.values())


def _flat(tensor: Tensor) -> Tensor:
    """All of a tensor's storage as [N] of its dtype; of bytes if the dtype does not divide the storage. Complex numbers
    are pairs of real ones."""
    storage = tensor.untyped_storage()
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    if storage.nbytes() % dtype.itemsize or dtype in PACKED:
        dtype = torch.uint8
    size = storage.nbytes() // dtype.itemsize
    return torch.empty(0, dtype=dtype, device=tensor.device).set_(storage, 0, (size,), (1,))


def copied(live: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors, on their device or in the memory of the host. Raises CannotCheck if neither has room."""
    made = {}
    for name, tensor in live.items():
        place = next((each for each in (tensor.device, HOST) if has_room(each, tensor.nbytes)), None)
        try:
            if place is None:
                raise MemoryError
            made[name] = tensor.to(place, copy=True)
        except (MemoryError, RuntimeError) as error:  # torch's out-of-memory error is a RuntimeError
            raise CannotCheck(f"there is no memory for a copy of {name}, {tensor.nbytes:,} bytes") from error
    return made


def has_room(device: torch.device, needed: int) -> bool:
    """Whether a device has memory for copies of `needed` bytes. Memory that torch only caches is released first."""
    if needed > SHARE * available(device) and device.type == "cuda":
        torch.cuda.empty_cache()
    return needed <= SHARE * available(device)


def available(device: torch.device) -> float:
    """Bytes that can be allocated on a device; infinite if it is not known."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return float("inf")


class Buffers:
    """The tensors that the arguments of one call hold, by name.

    zero: names of tensors to zero before every call. restore: names of tensors to restore before every call. whole:
    also copy all other tensors, to restore them between configurations. Raises CannotCheck if that is impossible.
    """

    def __init__(self, arguments: Mapping[str, Any], zero: Sequence[str], restore: Sequence[str], whole: bool) -> None:
        self.zero = list(_detached(arguments, zero).values())
        some = _detached(arguments, restore)
        self.restored = list(zip(some.values(), copied(some).values()))
        self.live = storages(arguments) if whole else {}
        self.before = copied(self.live)

    def prepare(self) -> None:
        """Zero and restore the named tensors; called before every call."""
        for tensor in self.zero:
            tensor.zero_()
        for tensor, copy in self.restored:
            tensor.copy_(copy)

    def reset(self) -> None:
        """Restore all tensors that were copied; the named ones are prepared if they were not."""
        for name, tensor in self.live.items():
            tensor.copy_(self.before[name])
        if not self.live:
            self.prepare()

    def leave(self) -> None:
        """Restore all tensors after the last measurement. As after Triton's tuning, those to zero are zero."""
        self.reset()
        for tensor in self.zero:
            tensor.zero_()


def _detached(arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of these names, also those that autograd protects from writes."""
    return {name: arguments[name].detach() for name in names if isinstance(arguments.get(name), Tensor)}
