"""A lower bound on the time of a configuration, from the work that it does and the rates of the device.

Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance model for multicore architectures",
https://doi.org/10.1145/1498765.1498785: a time is at least FLOPs over the peak, and at least bytes over the bandwidth.
The rates are measured, with a product of matrices and with copies of as many bytes as the problem moves, so that the
caches hold them if they hold the problem. `SLACK` turns the measured rates into upper bounds. So a configuration that
is skipped because of its bound could not have won.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kernels.dispatch.registry import Choice, Operation, Problem
from tuner.measure.measure import Clock

SLACK = 1.5  # no kernel is faster than torch's product or copy by this factor
SIDES = {"cpu": 512, "cuda": 4096}  # of the matrices
OTHERS = {"cpu": ("float32",), "cuda": ("bfloat16",)}  # dtypes that a kernel may compute in, for inputs of any dtype
MOST = 2**30  # bytes of a copy: beyond this the rate does not change
BEST_OF = 5
PROMISING = 2  # configurations with the lowest bounds are tried first


@dataclass(frozen=True)
class Probe:
    """A rate for a child to measure: FLOPs per second in `dtype`, or bytes per second of copies of `bytes`."""

    dtype: str
    bytes: int | None = None


@dataclass
class Rates:
    """The device's rates, each measured when it is first needed."""

    measure: Callable[[Probe], float]

    def __post_init__(self) -> None:
        self.known: dict[Probe, float] = {}

    def __call__(self, probe: Probe) -> float:
        if probe not in self.known:
            self.known[probe] = self.measure(probe)
        return self.known[probe]


def bound(operation: Operation, problem: Problem, choice: Choice, rates: Rates) -> float:
    """The least milliseconds that `choice` can take; 0 if its work is not known."""
    implementation = operation.implementations.get(choice.implementation)
    if implementation is None or implementation.work is None:
        return 0.0
    flops, moved = implementation.work({**implementation.default, **dict(choice.configuration)}, problem)
    computed = flops / max(rates(Probe(dtype)) for dtype in (problem.dtype, *OTHERS[problem.device])) if flops else 0.0
    return 1e3 / SLACK * max(computed, moved / rates(Probe("uint8", _power(moved))) if moved else 0.0)


def promising(bounds: Sequence[float]) -> tuple[int, ...]:
    """The configurations with the lowest bounds; none if all bounds are equal."""
    if len(set(bounds)) < 2:
        return ()
    return tuple(sorted(range(len(bounds)), key=lambda number: bounds[number])[:PROMISING])


def rate(probe: Probe, device: str, clock: Clock) -> float:
    """FLOPs or bytes per second, the best of a few measurements."""
    dtype = getattr(torch, probe.dtype)
    if probe.bytes is not None:
        held = torch.zeros(max(probe.bytes // 2, 4096), dtype=torch.uint8, device=device)
        copy = torch.empty_like(held)
        return 2 * held.numel() / _fastest(lambda: copy.copy_(held), clock)
    side = SIDES[torch.device(device).type]
    a = torch.ones(side, side, dtype=dtype, device=device)
    out = torch.empty_like(a)
    return 2 * side**3 / _fastest(lambda: torch.mm(a, a, out=out), clock)


def _fastest(call: Callable[[], object], clock: Clock) -> float:
    """Seconds."""
    call()
    return max(min(clock.time(call) for _ in range(BEST_OF)) / 1e3, 1e-7)


def _power(count: float) -> int:
    """The power of two at or below `count`, so that problems of similar size share a measurement."""
    return min(2 ** max(int(math.log2(max(count, 1))), 12), MOST)
