"""What the blocks of one model have in common: parameters that several of them use, and numbers that tell them apart.

Some published models use one matrix in all layers (Linformer's layerwise sharing, Transformer-XL's global biases, T5's
table of distances, the positions of the adaptive span), and some draw a random matrix a layer. A block knows nothing of
its neighbours, so it asks here while it is built: `shared` gives every block of a model that names the same key the
same parameter, `numbered` counts the blocks of a kind. Outside of a model each block is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import nn


@dataclass
class _Model:
    """One model while it is being built."""

    parameters: dict[Hashable, nn.Parameter] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


_building: ContextVar[_Model | None] = ContextVar("building", default=None)


@contextmanager
def one_model() -> Iterator[None]:
    """The blocks that are built inside belong to one model."""
    token = _building.set(_Model())
    try:
        yield
    finally:
        _building.reset(token)


def shared(key: Hashable, make: Callable[[], nn.Parameter]) -> nn.Parameter:
    """The parameter that the blocks of this model share under `key`, made by the first that asks.

    `key` names the block and all that decides the shape, as does that of `searchspace.cost.common`, which counts it.
    """
    model = _building.get()
    if model is None:
        return make()
    if key not in model.parameters:
        model.parameters[key] = make()
    return model.parameters[key]


def numbered(kind: str) -> int:
    """How many blocks have asked with this `kind` before in this model: 0 for the first, and outside of a model."""
    model = _building.get()
    if model is None:
        return 0
    number = model.counts.get(kind, 0)
    model.counts[kind] = number + 1
    return number
