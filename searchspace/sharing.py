"""Parameters that several blocks of a model share, and numbers that distinguish equal blocks.

Some published models use one matrix in all layers: Linformer's layerwise sharing, Transformer-XL's global biases, T5's
table of distances, the positions of the adaptive span. Others draw one random matrix per layer. A block does not know
its neighbours, so it calls these functions while it is built. `shared` returns the same parameter to every block of a
model that gives the same key. `numbered` counts the blocks of a kind. A block that is built alone shares nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import nn

Shared = TypeVar("Shared", bound=nn.Parameter | nn.Module)


@dataclass
class _Model:
    """The state of one model while it is built."""

    made: dict[Hashable, Any] = field(default_factory=dict)  # parameters and modules
    counts: dict[str, int] = field(default_factory=dict)


_building: ContextVar[_Model | None] = ContextVar("building", default=None)


@contextmanager
def one_model() -> Iterator[None]:
    """Blocks that are built inside this context belong to one model."""
    token = _building.set(_Model())
    try:
        yield
    finally:
        _building.reset(token)


def shared(key: Hashable, make: Callable[[], Shared]) -> Shared:
    """The parameter or module that the blocks of this model share under `key`; the first block calls `make`.

    `key` must contain the name of the block and everything that determines the shape. `searchspace.cost.common`, or the
    `common` of a part, counts the parameters under the same key.
    """
    model = _building.get()
    if model is None:
        return make()
    if key not in model.made:
        model.made[key] = make()
    return model.made[key]


def numbered(kind: str) -> int:
    """How many blocks of this model called this with `kind` before: 0 for the first, and for a block built alone."""
    model = _building.get()
    if model is None:
        return 0
    number = model.counts.get(kind, 0)
    model.counts[kind] = number + 1
    return number
