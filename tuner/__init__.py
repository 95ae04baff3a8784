"""Finds the fastest correct configuration of an operation or a Triton kernel on a device.

`tuner.tune` is a decorator that replaces `triton.autotune`; `tuner.wrap_triton` makes such a kernel part of a custom
operator; `tuner.listen` records what `triton.autotune` measures.

measure/      clocks, intervals, correctness checks, and the child process that measures
search/       the search, its result cache, decisions, and the tables that decisions are written into
strategies/   which configuration to measure next
triton/       tuning of a user's own Triton kernels
replay/       strategies on recorded spaces, without a device
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.triton.decorator import tune
    from tuner.triton.listener import listen
    from tuner.triton.tracing import wrap_triton

__all__ = ["listen", "tune", "wrap_triton"]
_PLACES = {"tune": "tuner.triton.decorator", "listen": "tuner.triton.listener", "wrap_triton": "tuner.triton.tracing"}


def __getattr__(name: str) -> Any:
    """Imports a function when it is first used, because the functions need torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
