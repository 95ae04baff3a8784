"""Measures devices and finds the best configuration of an operation on one.

`tuner.tune` decorates a Triton kernel in the place of `triton.autotune`; `tuner.listen` records what that measures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.triton.decorator import tune
    from tuner.triton.listener import listen

__all__ = ["listen", "tune"]


def __getattr__(name: str) -> Any:
    """Both are imported when they are used: they need torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module({"tune": "tuner.triton.decorator", "listen": "tuner.triton.listener"}[name]), name)
