"""Compiles the configurations of a call in child processes, several at once and each with a time limit.

Triton keeps compiled kernels on disk, so this process then finds them there. The children are forks, and know the GPU
only as the target of the compiler: they use none of its memory and do not disturb what is being timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from kernels.dispatch.registry import Choice
from tuner.measure.precompile import Elsewhere
from tuner.outcome import Outcome
from tuner.triton.case import Launch
from tuner.triton.isolation.attempts import Attempts, Forked, NoChild, can_fork

MOST = 8  # processes


class CompileAhead:
    """compile: compiles a choice in a child; processes: how many children there are at most."""

    def __init__(self, compile: Callable[[Choice], None], limit: float, processes: int) -> None:
        self.limit = limit
        self.children = [Attempts(partial(Forked, compile)) for _ in range(processes)]
        self.child_of: dict[Choice, Attempts] = {}

    def add(self, choices: Iterable[Choice]) -> None:
        """Compile `choices` in the background, in their order."""
        for choice in choices:
            if choice not in self.child_of:
                least = min(self.children, key=lambda each: len(each.waiting))
                with suppress(NoChild):
                    least.add([choice])
                    self.child_of[choice] = least

    def failure(self, choice: Choice) -> Outcome | None:
        """Wait until `choice` is compiled: None, or how its compiler hung or crashed. Raises NoChild."""
        child = self.child_of.setdefault(choice, min(self.children, key=lambda each: len(each.waiting)))
        ended = child.answer(choice, self.limit).ended
        return None if ended is None else Outcome(ended.kind, message=f"compilation: {ended.message}")

    def close(self) -> None:
        for each in self.children:
            each.close()


def compile_ahead(launch: Launch, choices: Mapping[Choice, Any], limit: float) -> CompileAhead | None:
    """For the configurations of a call on a GPU; None if this system has no forks."""
    if not can_fork():
        return None
    from triton.runtime import driver

    active = driver.active
    elsewhere = Elsewhere(active.get_current_target(), active.get_current_device())

    def compile(choice: Choice) -> None:
        compile_only(launch, choices[choice], elsewhere)

    return CompileAhead(compile, limit, max(1, min(MOST, (os.cpu_count() or 1) // 2)))


def compile_only(launch: Launch, config: Any, elsewhere: Elsewhere) -> Any:
    """The compiled kernel of a call with `config`. Raises what Triton's compiler raises."""
    from triton.runtime import driver

    driver.set_active(elsewhere)
    settings = config.all_kwargs()
    if config.pre_hook is not None:
        with suppress(Exception):  # it may change the shapes of descriptors; what it does on the GPU fails here
            config.pre_hook({**launch.arguments, **settings})
    return launch.kernel.run(*launch.args, grid=launch.grid, warmup=True, **launch.kwargs, **settings)
