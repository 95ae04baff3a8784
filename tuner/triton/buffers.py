"""Copies of the tensors of a kernel's call, to undo what a configuration writes and to detect a wrong result.

Whole storages are copied: a kernel gets pointers, and may write outside of the view whose pointer it got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuner.measure.correctness import ROUNDINGS

MEMORY = 0.4  # share of a GPU's free memory that copies may take
LOOSER = 4  # times the tolerance of the correctness check: the default's result, the reference here, is rounded too


class Buffers:
    """The tensors among the arguments of one call, by name.

    zero: names of tensors to zero before every call. restore: names of tensors to restore before every call. whole:
    also copy all other tensors, to restore them between configurations; without enough memory they are not copied.
    """

    def __init__(self, arguments: Mapping[str, Any], zero: Sequence[str], restore: Sequence[str], whole: bool) -> None:
        tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
        self.zero = [tensors[name] for name in zero if name in tensors]
        self.restored = [(tensors[name], tensors[name].clone()) for name in restore if name in tensors]
        found: dict[int, tuple[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if tensor.untyped_storage().nbytes():
                found.setdefault(tensor.untyped_storage().data_ptr(), (name, _flat(tensor)))
        self.live = dict(found.values())
        self.before = _copied(self.live) if whole else None

    @property
    def whole(self) -> bool:
        """Whether all tensors were copied."""
        return self.before is not None

    def prepare(self) -> None:
        """Zero and restore the named tensors; called before every call."""
        for tensor in self.zero:
            tensor.zero_()
        for tensor, copy in self.restored:
            tensor.copy_(copy)

    def reset(self) -> None:
        """Restore all tensors; without copies, do what `prepare` does."""
        if self.before is None:
            self.prepare()
            return
        for name, tensor in self.live.items():
            tensor.copy_(self.before[name])

    def written(self) -> dict[str, Tensor]:
        """Copies of the tensors that have changed."""
        before = self.before or {}
        return {name: self.live[name].clone() for name in before if not _same(self.live[name], before[name])}

    def difference(self, expected: Mapping[str, Tensor]) -> str | None:
        """How the tensors differ from `expected`, or from their original values if it does not name them; else None."""
        for name, before in (self.before or {}).items():
            wanted = expected.get(name, before)
            if count := _differences(self.live[name], wanted):
                return f"{name} differs at {count} of {wanted.numel()} places from what the first configuration gives"
        return None


def _flat(tensor: Tensor) -> Tensor:
    """All of a tensor's storage as [N] of its dtype; of bytes if the dtype does not divide the storage."""
    storage = tensor.untyped_storage()
    dtype = tensor.dtype if storage.nbytes() % tensor.element_size() == 0 else torch.uint8
    size = storage.nbytes() // dtype.itemsize
    return torch.empty(0, dtype=dtype, device=tensor.device).set_(storage, 0, (size,), (1,))


def _copied(live: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    needed = sum(each.numel() * each.element_size() for each in live.values() if each.is_cuda)
    if needed and needed > MEMORY * torch.cuda.mem_get_info()[0]:
        return None
    try:
        return {name: tensor.clone() for name, tensor in live.items()}
    except (MemoryError, RuntimeError):  # torch's out-of-memory error is a RuntimeError
        return None


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether all bits are equal, so that NaN equals itself."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def _differences(found: Tensor, wanted: Tensor) -> int:
    """The number of places where two tensors differ by more than rounding."""
    if _same(found, wanted):
        return 0
    if not found.is_floating_point():
        return int((found != wanted).sum())
    wide = torch.float64 if found.dtype == torch.float64 else torch.float32
    found, expected = found.to(wide), wanted.to(wide)
    plain = torch.where(expected.isfinite(), expected, 0.0)
    precision = LOOSER * ROUNDINGS.get(wanted.dtype, 8) * torch.finfo(wanted.dtype).eps
    fits = (found - expected).abs() <= precision * (plain.abs() + plain.square().mean().sqrt())
    fits |= (found == expected) | (found.isnan() & expected.isnan())
    return int((~fits).sum())
