"""Definitions for graphs of operators, which replace definitions of the blocks: without loops over positions, and
without a number of chunks or tiles that depends on the length.

Each has the arguments and the results of the definition that it replaces (`FORMS`). One chunk or one tile holds the
whole sequence, and masks select the same pairs of positions: the results are the same, but work and memory grow as the
square of the length. T time.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from kernels.recurrence.steps import States
from kernels.sparse_attention.long_short_attention import Segments
from kernels.sparse_attention.sliding_window_attention import Tiling
from kernels.sparse_attention.span_attention import SpanTiling
from searchspace.primitives.attention.relative_attention import RelativeAttentionConfig
from searchspace.primitives.attention.relative_scores import reach_back


def over(step: Callable[..., States], states: States, inputs: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    """An operator that repeats `step`. Outside an export a loop, because the operator would be compiled first."""
    if not torch.compiler.is_exporting():
        every = []
        for present in zip(*(each for each in inputs if each is not None)):
            row = iter(present)
            states = step(states, *(None if each is None else next(row) for each in inputs))
            every.append(states)
        return tuple(torch.stack(each) for each in zip(*every))
    batch = states[0].shape[-2]

    def one(states: States, now: States) -> tuple[States, States]:
        given = iter(now)
        new = step(states, *(None if each is None else next(given) for each in inputs))
        # The batch is named, because AOTInductor reads the sizes of the results from what a step uses. Copies, because
        # a result may not share memory with a state.
        first = new[0].view(*new[0].shape[:-2], batch, new[0].shape[-1])
        return tuple(each.clone() for each in new), tuple(each.clone() for each in (first, *new[1:]))

    given = tuple(each for each in inputs if each is not None)
    first = tuple(each.clone(memory_format=torch.contiguous_format) for each in states)
    return torch._higher_order_ops.scan(one, first, given)[1]


def chunks(length: int, most: int = 0) -> tuple[int, int]:
    """One chunk."""
    return 1, length


def tiling(queries: int, keys: int, window: int, causal: bool) -> Tiling:
    """One tile, which reads all keys."""
    return Tiling(count=1, rows=queries, columns=keys, left=keys - queries)


def span_tiling(queries: int, keys: int, span: int, *, zeros: bool) -> SpanTiling:
    """One tile, which reads all distances."""
    return SpanTiling(count=1, rows=queries, columns=queries + span - 1, width=span)


def running_maximum(x: Tensor) -> Tensor:
    """x: [B, H, T] -> the largest value up to each position, [B, H, T], computed from all pairs."""
    later = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool, device=x.device).triu(1)
    return x[:, :, None].masked_fill(later, torch.finfo(x.dtype).min).amax(3)


def segments(length: int, window: int) -> Segments:
    """Segments of `window` positions, at least two, because the last one is empty."""
    return Segments(-(-length // window) + 1, window, 2 * window)


def in_segment(config: RelativeAttentionConfig, length: int, more: int) -> int:
    """All positions are in one segment."""
    return more


def reads(config: RelativeAttentionConfig, queries: int, keys: int, device: torch.device) -> Tensor:
    """[T, T], True where the key is in the segment of the query or its memory, and not after the query."""
    back = reach_back(queries, keys, device)
    found = back >= 0
    if config.segment is not None:
        found = found & (back <= torch.arange(queries, device=device)[:, None] % config.segment + config.memory)
    return found & (back <= config.reach) if config.same_length else found


def always(*_: Any) -> bool:
    """True: the same code for all lengths."""
    return True


FORMS: dict[tuple[str, str], Callable[..., Any]] = {
    ("kernels.recurrence.steps", "over"): over,
    ("kernels.linear_attention.linear_attention", "chunks"): chunks,
    ("searchspace.primitives.linear_attention.favor_attention", "running_maximum"): running_maximum,
    ("kernels.sparse_attention.sliding_window_attention", "tiling"): tiling,
    ("kernels.sparse_attention.span_attention", "span_tiling"): span_tiling,
    ("kernels.sparse_attention.long_short_attention", "segments"): segments,
    ("searchspace.primitives.attention.relative_attention", "in_segment"): in_segment,
    ("searchspace.primitives.attention.relative_attention", "reads"): reads,
    ("searchspace.primitives.sparse_attention.sparse_attention", "is_short"): always,
}


NUMBERS = {  # the same for numbers
    ("kernels.linear_attention.decayed_linear_attention", "SLAB"): 2**62,  # positions of one pass
}
OURS = ("kernels.", "searchspace.")


@contextmanager
def for_graphs() -> Iterator[None]:
    """Inside, the forms replace the definitions in every module. Other threads get the same results from them."""
    with ExitStack() as changes:
        for (module, name), form in {**FORMS, **NUMBERS}.items():
            found = importlib.import_module(module)
            places = [(found, name)]
            if (module, name) in FORMS:
                places = _places(getattr(found, name))
            for place, used in places:
                changes.enter_context(_replaced(place, used, form))
        yield


def _places(definition: Any) -> list[tuple[ModuleType, str]]:
    """Where `definition` is a name of a module of ours."""
    ours = [each for name, each in list(sys.modules.items()) if name.startswith(OURS)]
    return [(each, name) for each in ours for name, value in list(vars(each).items()) if value is definition]


@contextmanager
def _replaced(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
