"""The arguments of `tuner.tune`, checked and converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuner.measure.measure import Clock
from tuner.search.backends import Backend
from tuner.triton.kernel_bench import Injected, Timer


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `tune`."""

    configs: tuple[Any, ...] | None
    space: Mapping[str, Sequence[Any]] | None
    constraints: tuple[Callable[[Mapping[str, Any]], bool], ...]
    default: dict[str, Any]
    key: tuple[str, ...]
    prune: dict[str, Any]
    reset_to_zero: tuple[str, ...]
    restore_value: tuple[str, ...]
    pre_hook: Callable[..., Any] | None
    post_hook: Callable[..., Any] | None
    timer: Timer | None
    clock: Clock | None
    backend: Backend
    effort: str
    budget: float | None
    strategy: str | None
    seed: int
    check: bool
    deterministic: bool
    limit: float | None
    isolate: bool
    place: str  # where results are stored


def timer_of(
    do_bench: Callable[..., Any] | None, warmup: int | None, rep: int | None, use_cuda_graph: bool
) -> Timer | None:
    """The benchmark that Triton's arguments ask for; None for our own."""
    if do_bench is not None:
        return Injected(do_bench)
    if warmup is None and rep is None and not use_cuda_graph:
        return None
    import triton.testing

    if use_cuda_graph:
        return Injected(partial(triton.testing.do_bench_cudagraph, rep=rep or 100))
    return Injected(partial(triton.testing.do_bench, warmup=warmup or 25, rep=rep or 100))
