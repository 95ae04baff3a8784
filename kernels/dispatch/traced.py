"""Sizes in a trace of torch.compile, where they may be symbols."""

from __future__ import annotations


def hint(size: int) -> int:
    """The value that a size has in this trace, without a guard on it; 1 if it depends on data."""
    from torch.fx.experimental import symbolic_shapes

    if hasattr(symbolic_shapes, "optimization_hint"):  # since torch 2.12
        return symbolic_shapes.optimization_hint(size, fallback=1)
    return symbolic_shapes.size_hint(size, fallback=1)  # type: ignore[attr-defined]
