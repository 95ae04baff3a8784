"""The tensors of a kernel's call, so that trying a configuration leaves no trace and a wrong one is seen.

Copies are of whole storages: a kernel is given pointers, and may write beside the view whose pointer it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuner.measure.correctness import ROUNDINGS

ROOM = 0.4  # of a GPU's free memory that copies may take
LOOSER = 4  # times what the gate allows: the default configuration, which others are held against, is rounded too


class Buffers:
    """Of the arguments of one call, by name.

    zero: those that are zeroed before every call. restore: those that are set back before every call. whole: keep a
    copy of everything else too, to set it back between configurations; where memory is short this is given up.
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
        """Whether there is a copy of everything."""
        return self.before is not None

    def prepare(self) -> None:
        """Before every call."""
        for tensor in self.zero:
            tensor.zero_()
        for tensor, copy in self.restored:
            tensor.copy_(copy)

    def reset(self) -> None:
        """As it all was before; where there is no copy, what `prepare` does."""
        if self.before is None:
            self.prepare()
            return
        for name, tensor in self.live.items():
            tensor.copy_(self.before[name])

    def written(self) -> dict[str, Tensor]:
        """Copies of what is not as it was before."""
        before = self.before or {}
        return {name: self.live[name].clone() for name in before if not _same(self.live[name], before[name])}

    def difference(self, expected: Mapping[str, Tensor]) -> str | None:
        """How what is there now differs from `expected`, where that says nothing from what was there before."""
        for name, before in (self.before or {}).items():
            wanted = expected.get(name, before)
            if count := _apart(self.live[name], wanted):
                return f"{name} differs at {count} of {wanted.numel()} places from what the first configuration gives"
        return None


def _flat(tensor: Tensor) -> Tensor:
    """All of a tensor's storage, [N] of its dtype; of bytes where that does not divide it."""
    storage = tensor.untyped_storage()
    dtype = tensor.dtype if storage.nbytes() % tensor.element_size() == 0 else torch.uint8
    size = storage.nbytes() // dtype.itemsize
    return torch.empty(0, dtype=dtype, device=tensor.device).set_(storage, 0, (size,), (1,))


def _copied(live: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    needed = sum(each.numel() * each.element_size() for each in live.values() if each.is_cuda)
    if needed and needed > ROOM * torch.cuda.mem_get_info()[0]:
        return None
    try:
        return {name: tensor.clone() for name, tensor in live.items()}
    except (MemoryError, RuntimeError):  # torch's own error of memory is a RuntimeError
        return None


def _same(one: Tensor, other: Tensor) -> bool:
    """To the bit, so that what is not a number equals itself."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def _apart(found: Tensor, wanted: Tensor) -> int:
    """At how many places two tensors differ by more than rounding."""
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
