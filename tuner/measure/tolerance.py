"""How far a result may be from the exact one: an error model per dtype and reduction length.

Three errors are bounded, each in units of the dtype's precision and relative to the error of trusted computations (the
definition in the same dtype, and the definition with random rounding): the error of each element, the root mean square
of all errors, and the bias, which is how far the best factor between the two results is from 1. Rounding averages out
over many elements; a wrong scale or an omitted part does not average out. Sums of n numbers in float32 have an error
that grows as sqrt(n) (Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 4.2); the 16-bit types are
rounded once when they are stored, because kernels accumulate in float32.

Tensors are compared in blocks, so that a comparison in float64 needs little memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 2**22  # elements converted to float64 at a time
OWN = 4.0  # times the trusted computations' error of an element, and
OWN_RMS = 3.0  # times its root mean square error
SAMPLE = 2**16  # values from which the size of most is known
EXTREME = 1e4  # times the size of most: a mask of -1e9, for example, which says nothing of the error of others
STORED = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Error:
    """The error of a result. worst: the largest of an element. rms: of all. bias: of the scale, relative."""

    worst: float = 0.0
    rms: float = 0.0
    bias: float = 0.0

    @classmethod
    def largest(cls, errors: Iterable[Error]) -> Error:
        """The largest of each of the three."""
        each = [(one.worst, one.rms, abs(one.bias)) for one in errors]
        return cls(*map(max, zip(*each, strict=True)))

    def times(self, factor: float) -> Error:
        return Error(factor * self.worst, factor * self.rms, factor * self.bias)


@dataclass(frozen=True)
class Bounds:
    """In units of precision. relative, typical: of the error of an element, times its size and times the typical size.
    rms: of the root mean square error, times the typical size. bias: of the factor."""

    relative: float
    typical: float
    rms: float
    bias: float


def bounds(dtype: torch.dtype, length: int) -> Bounds:
    """The bounds for results in `dtype` whose sums have up to `length` terms."""
    if dtype in STORED:
        return Bounds(4.0, 4.0, 1.5, 1.0)
    if torch.finfo(dtype).bits == 8:
        return Bounds(1.0, 0.5, 0.75, 0.25)
    if dtype == torch.float64:  # the exact result is computed in float64 too
        return Bounds(256.0, 256.0, 64.0, 64.0)
    root = math.sqrt(max(length, 1))
    return Bounds(max(16.0, 2 * root), max(16.0, 2 * root), max(8.0, root / 2), max(4.0, root / 8))


def growth(dtype: torch.dtype, length: int) -> float:
    """The largest error of a step in units of precision, if its sums have up to `length` terms: exponentials may be off
    by two units, and partial sums are rounded; the 16-bit types are rounded once.
    """
    return 1.0 if dtype in STORED else 2.0 * max(1.0, math.sqrt(max(length, 1)) / 8)


def error(found: Tensor, exact: Tensor) -> Error:
    """The error of `found` relative to `exact`, of the same shape; places where either is not finite do not count."""
    sums = _Sums.of(found, exact)
    return Error(sums.worst, sums.rms, sums.bias)


def difference(
    found: Tensor,
    exact: Tensor,
    dtype: torch.dtype,
    own: Error | None = None,
    *,
    length: int = 1,
    slack: float = 1.0,
    before: Tensor | None = None,
) -> str | None:
    """How `found` differs from `exact` by more than the error model allows; None if it does not.

    Both have the same shape and may be on different devices. dtype: of the computation. own: the error of a trusted
    computation in that dtype. length: terms of the sums. slack: a factor on all bounds, for an `exact` that is rounded
    too. before: what a place held before; places that `exact` leaves as they were do not count for the typical size.
    """
    if not exact.numel():
        return None
    own, wanted = own or Error(), bounds(dtype, length)
    precision = slack * max(torch.finfo(dtype).eps, torch.finfo(torch.float64).eps)
    sums = _Sums.of(found, exact, before)
    typical, count = sums.typical, exact.numel()
    wrong, at, by = 0, 0, -1.0
    certain = sums.is_comparable and sums.worst <= precision * wanted.typical * typical + OWN * own.worst
    for start, one, other in () if certain else _blocks(found, exact):
        plain = torch.where(other.isfinite(), other, 0.0).abs()
        allowed = precision * (wanted.relative * plain + wanted.typical * typical) + OWN * own.worst
        apart = (one - other).abs()
        fits = (apart <= allowed) | (one == other) | (one.isnan() & other.isnan())
        if not bool(fits.all()):
            wrong += int((~fits).sum())
            left = apart.nan_to_num(torch.inf, torch.inf).where(~fits, -1.0)
            if left.max().item() > by:
                by, at = left.max().item(), start + int(left.argmax())
    if wrong:
        instead = f"{found.reshape(-1)[at].item():.6g} instead of {exact.reshape(-1)[at].item():.6g}"
        return f"differs at {wrong} of {count} places, most where it is {instead}"
    most = precision * wanted.rms * typical + OWN_RMS * own.rms
    if sums.rms > most:
        return f"has an error of {sums.rms:.3g} on average, more than {most:.3g}"
    most = precision * (wanted.bias + 2.0 / math.sqrt(count)) + OWN_RMS * abs(own.bias)
    if abs(sums.bias) > most:
        return f"is {1 + sums.bias:.6g} times what it should be"
    return None


@dataclass(frozen=True)
class _Sums:
    """Over the places where both are finite, without values of an extreme size."""

    worst: float
    rms: float
    typical: float  # the root mean square of the exact result
    bias: float
    is_comparable: bool  # both are finite everywhere

    @classmethod
    def of(cls, found: Tensor, exact: Tensor, before: Tensor | None = None) -> _Sums:
        worst, errors, squares, products, count, places = 0.0, 0.0, 0.0, 0.0, 0, 0
        least = _extreme(exact)
        for start, one, other in _blocks(found, exact):
            if before is not None:
                held = before.reshape(-1)[start : start + BLOCK].to(other.device, torch.float64)
                left = (other == held) | (other.isnan() & held.isnan())
                other = torch.where(left, torch.nan, other)
            if least < math.inf:
                other = torch.where(other.abs() < least, other, torch.nan)
            places += other.numel()
            apart = one - other
            if not math.isfinite(apart.sum().item()):  # leave out what is not finite
                finite = one.isfinite() & other.isfinite()
                squares += torch.where(other.isfinite() & ~finite, other, 0.0).square().sum().item()
                apart, other = apart[finite], other[finite]
            if apart.numel():
                worst = max(worst, apart.abs().max().item())
                errors += torch.dot(apart, apart).item()
                squares += torch.dot(other, other).item()
                products += torch.dot(apart, other).item()
                count += apart.numel()
        is_comparable, count = count == places, max(count, 1)
        bias = products / squares if squares else 0.0
        return cls(worst, math.sqrt(errors / count), math.sqrt(squares / count), bias, is_comparable)


def _extreme(exact: Tensor) -> float:
    """The size from which values are extreme, infinite if none are: their error is bounded relative to themselves.

    The size of the rest is that of a sample, because a pass over all values in float64 is slow.
    """
    flat = exact.detach().reshape(-1)
    blocks = (flat[start : start + BLOCK] for start in range(0, flat.numel(), BLOCK))
    least = max((_sizes(each).max().item() for each in blocks), default=0.0) / 10
    some = _sizes(flat[:: flat.numel() // SAMPLE | 1]).to(torch.float64)
    rest = some[(some > 0) & (some < least)]
    return least if rest.numel() and EXTREME * rest.square().mean().sqrt().item() < least else math.inf


def _sizes(values: Tensor) -> Tensor:
    """Absolute values; zero where they are not finite."""
    plain = values.to(torch.float32) if values.dtype.itemsize == 1 else values
    return plain.abs().nan_to_num(0.0, 0.0)


def _blocks(found: Tensor, exact: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(the place of the first element, a block of each as [N] of float64 on the device of `found`)."""
    one, other = found.detach().reshape(-1), exact.detach().reshape(-1)
    for start in range(0, other.numel(), BLOCK):
        yield (
            start,
            one[start : start + BLOCK].to(torch.float64),
            other[start : start + BLOCK].to(found.device, torch.float64),
        )


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether all bits of two tensors of [N] are equal, so that NaN equals itself; compared in blocks."""
    return all(
        torch.equal(
            one[start : start + BLOCK].view(torch.uint8),
            other[start : start + BLOCK].to(one.device).view(torch.uint8),
        )
        for start in range(0, one.numel(), BLOCK)
    )
