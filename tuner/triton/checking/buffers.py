"""Copies of the tensors of a kernel's call, to undo what its configurations write.

Whole storages are copied: a kernel gets pointers, and may write outside of the view whose pointer it got. The copies
are on the tensors' own device; if its memory is short, they are in the memory of the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuner.triton.checking.holders import UnknownMemory, tensors

HOST = torch.device("cpu")
SHARE = 0.4  # of a device's available memory, the most that the copies for one purpose may take


PACKED = tuple(getattr(torch, name) for name in ("float4_e2m1fn_x2",) if hasattr(torch, name))


class CannotCheck(Exception):
    """The tensors of a call cannot be copied, so that no configuration can be checked or undone."""


class NothingWritten(CannotCheck):
    """A call changed nothing that its arguments hold, so that a wrong result would not show. Others may show it."""


class Buffers:
    """The tensors that the arguments of one call hold, by name.

    zero: names of tensors to zero before every call. restore: names of tensors to restore before every call. whole:
    also copy all other tensors, to restore them between configurations. Raises CannotCheck if that is impossible.
    """

    def __init__(self, arguments: Mapping[str, Any], zero: Sequence[str], restore: Sequence[str], whole: bool) -> None:
        self.zero = _detached(arguments, zero)
        try:
            self.restored = [(tensor, tensor.clone()) for tensor in _detached(arguments, restore)]
            self.live = storages(arguments) if whole else {}
        except (UnknownMemory, MemoryError, RuntimeError) as error:  # torch's out-of-memory error is a RuntimeError
            raise CannotCheck(str(error)) from error
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


def _detached(arguments: Mapping[str, Any], names: Sequence[str]) -> list[Tensor]:
    """The tensors of these names, also those that autograd protects from writes."""
    return [arguments[name].detach() for name in names if isinstance(arguments.get(name), Tensor)]


def storages(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Each storage that the arguments use, as [N] of the dtype of its first tensor, by the name of that tensor.

    Raises UnknownMemory if an argument points to memory that cannot be found.
    """
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor, _ in tensors(arguments):
        if tensor.untyped_storage().nbytes():
            found.setdefault(tensor.untyped_storage().data_ptr(), (name, flat(tensor)))
    return dict(found.values())


def flat(tensor: Tensor) -> Tensor:
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
        if place is None:
            raise CannotCheck(f"there is no memory for a copy of {name}, {tensor.nbytes:,} bytes")
        try:
            made[name] = tensor.to(place, copy=True)
        except (MemoryError, RuntimeError) as error:
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
    try:
        import psutil
    except ImportError:  # a machine that only measures
        return _free_pages()
    return psutil.virtual_memory().available


def _free_pages() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return float("inf")
