"""Which implementation serves an operation: the registry, tables of tuned choices, plain mode, FLOP counts."""

from kernels.dispatch.mode import plain

__all__ = ["plain"]
