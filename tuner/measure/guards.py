"""Guard zones around tensors: a write into them is found, and a read from them gives NaN.

A kernel that reads or writes outside of a tensor usually gives the right result, because the memory there is mapped and
belongs to another tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

GUARD = 2**14  # bytes of each zone; a multiple of what allocators align to
LARGEST = 2**28  # bytes of a tensor that gets zones
NANS = {  # the whole numbers of the same size, the bits of a NaN, and how many numbers fit beside them
    torch.float64: (torch.int64, 0x7FF8000000000000, 2**20),
    torch.float32: (torch.int32, 0x7FC00000, 2**20),
    torch.float16: (torch.int16, 0x7E00, 250),
    torch.bfloat16: (torch.int16, 0x7FC0, 60),
}
MADE_BY = ("empty", "empty_like", "zeros", "zeros_like", "full", "full_like")


_numbers = itertools.count()


class Guards:
    """Tensors with guard zones of `size` bytes each. largest: bytes of a tensor that gets zones."""

    def __init__(self, size: int = GUARD, largest: float = LARGEST) -> None:
        self.size, self.largest = size, largest
        self.zones: list[tuple[Tensor, torch.dtype, int]] = []  # all bytes of a tensor with zones, its dtype, a number

    def copy(self, value: Any) -> Any:
        """A tensor with the same numbers, strides and dtype, with guard zones; anything else is returned unchanged."""
        if not isinstance(value, Tensor) or not self._takes(value):
            return value
        made = self._around(value)
        made.copy_(value.detach())
        return made.requires_grad_(value.requires_grad)

    def like(self, value: Tensor) -> Tensor:
        """The same for a new tensor of any shape whose numbers do not matter: floating ones are NaN."""
        if not self._takes(value):
            return value
        made = self._around(value)
        if value.is_floating_point() and value.dtype.itemsize > 1:
            made.fill_(torch.nan)
        return made

    def written(self) -> bool:
        """Whether a guard zone was written."""
        for whole, dtype, number in self.zones:
            fresh = torch.empty_like(whole[: self.size])
            fill(fresh, dtype, number)
            if not (torch.equal(whole[: self.size], fresh) and torch.equal(whole[-self.size :], fresh)):
                return True
        return False

    def refill(self) -> None:
        """Make all zones as they were."""
        for whole, dtype, number in self.zones:
            fill(whole[: self.size], dtype, number)
            fill(whole[-self.size :], dtype, number)

    def _takes(self, value: Tensor) -> bool:
        if torch._debug_has_internal_overlap(value) == 1:  # it cannot be written
            return False
        plain = type(value) in (Tensor, torch.nn.Parameter) and value.layout is torch.strided
        return plain and value.device.type in ("cpu", "cuda") and value.numel() > 0 and value.nbytes <= self.largest

    def _around(self, value: Tensor) -> Tensor:
        """A tensor of the same shape and strides between two zones."""
        extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
        size = -(-extent * value.element_size() // 16) * 16
        whole = torch.empty(size + 2 * self.size, dtype=torch.uint8, device=value.device)
        whole[self.size : -self.size].zero_()
        # The rest of the last 16 bytes belongs to the zone behind.
        start, end = self.size, self.size + extent * value.element_size()
        number = next(_numbers)
        fill(whole[:start], value.dtype, number)
        fill(whole[end:], value.dtype, number)
        self.zones.append((whole, value.dtype, number))
        empty = torch.empty(0, dtype=value.dtype, device=value.device)
        return empty.set_(whole.untyped_storage(), start // value.element_size(), value.shape, value.stride())


def fill(zone: Tensor, dtype: torch.dtype, number: int) -> None:
    """Fill zone, [N] bytes, with a NaN that has `number` in its bits.

    So a NaN that was read from another zone and is written into this one is found. Whole numbers are 1, because a
    larger one may be used as an address.
    """
    real = dtype.to_real() if dtype.is_complex else dtype
    if not real.is_floating_point:
        zone.view(real).fill_(1)
    elif real in NANS:
        whole, quiet, most = NANS[real]
        zone.view(whole).fill_(quiet + 1 + number % most)
    else:
        zone.fill_(0x7F)  # NaN in most of the 8-bit types of PyTorch


@contextmanager
def guarded_allocations() -> Iterator[Guards]:
    """Inside the block the tensors that Python code makes with `torch.empty` and the like have guard zones.

    Only for code that is not traced: the functions of torch are replaced for a moment.
    """
    guards = Guards()
    originals = {name: getattr(torch, name) for name in MADE_BY}
    new_empty = Tensor.new_empty

    def wrapped(make: Callable[..., Tensor], is_empty: bool) -> Callable[..., Tensor]:
        def call(*args: Any, **kwargs: Any) -> Tensor:
            made = make(*args, **kwargs)
            if is_empty:
                return _keeping(guards.like(made), made)
            return _keeping(guards.copy(made), made)

        return call

    # What guards need must not be guarded itself, so they keep the original functions while they work.
    def safely(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*args: Any, **kwargs: Any) -> Tensor:
            _set(originals, new_empty)
            try:
                return call(*args, **kwargs)
            finally:
                _set(replaced, replaced_new)

        return run

    replaced = {name: safely(wrapped(make, "empty" in name)) for name, make in originals.items()}
    replaced_new = safely(wrapped(new_empty, True))
    _set(replaced, replaced_new)
    try:
        yield guards
    finally:
        _set(originals, new_empty)


def _keeping(made: Tensor, original: Tensor) -> Tensor:
    return made if made is original else made.requires_grad_(original.requires_grad)


def _set(functions: dict[str, Callable[..., Tensor]], new_empty: Any) -> None:
    for name, each in functions.items():
        setattr(torch, name, each)
    Tensor.new_empty = new_empty  # type: ignore[method-assign]
