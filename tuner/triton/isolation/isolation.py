"""Compiles each configuration of a call, and runs it for the first time, where it cannot hang this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch

from kernels.dispatch.registry import Choice
from tuner.triton.call import grid_of
from tuner.triton.case import Case, Launch
from tuner.triton.configurations import interpreted
from tuner.triton.isolation.attempts import Answer, NoChild, can_fork
from tuner.triton.isolation.compile_ahead import CompileAhead, compile_ahead
from tuner.triton.isolation.first_run import FirstRuns, in_a_fork, in_a_new_process

HERE = Answer(raised=True)  # what comes of it is seen in this process


class Isolation:
    """limit: seconds of a compilation, and of a first run. work: checks a choice, and returns the mistake
    or None. restore: sets the arguments of `launch` back, and prepares them for a configuration."""

    def __init__(
        self,
        case: Case,
        launch: Launch,
        limit: float,
        work: Callable[[Choice], str | None],
        restore: Callable[[Any], None],
    ) -> None:
        self.case, self.launch, self.limit, self.work, self.restore = case, launch, limit, work, restore

    @cached_property
    def compiling(self) -> CompileAhead | None:
        """None if nothing is compiled, or if this system has no forks."""
        if torch.device(self.case.where).type == "cpu" or interpreted(self.launch.kernel):
            return None
        return compile_ahead(self.launch, self.case.choices, self.limit)

    @cached_property
    def first_runs(self) -> FirstRuns | None:
        """None if configurations run first in this process."""
        if torch.device(self.case.where).type == "cpu" and can_fork():
            return in_a_fork(self.work, self.limit)
        hooks = self.case.large is None and any(each.pre_hook is not None for each in self.case.choices.values())
        return in_a_new_process(self.launch, self.case.where, self.limit, self._ready, hooks)

    def tried(self, choice: Choice) -> Answer:
        """What came of the compilation and the first run of `choice`. Raises NoChild if no process can be started."""
        if self.compiling is not None and (failed := self.compiling.failure(choice)) is not None:
            return Answer(ended=failed)
        if self.first_runs is None:
            return HERE
        try:
            return self.first_runs.answer(choice)
        except NoChild:
            if self.first_runs.is_check:
                raise
        self.first_runs = None  # the kernel cannot be imported; a watchdog observes its runs in this process
        return HERE

    @property
    def checks(self) -> bool:
        """Whether an answer holds the result of the whole check."""
        return self.first_runs is not None and self.first_runs.is_check

    def compile(self, choices: Sequence[Choice]) -> None:
        """Compile `choices` in the background."""
        if self.compiling is not None:
            self.compiling.add(choices)

    def expected_seconds(self, choice: Choice) -> float:
        """How long the first run of `choice` is likely to take; 0 if nothing is known."""
        made = self.__dict__.get("first_runs")
        return 0.0 if made is None else made.patience.expected(choice.implementation)

    def close(self) -> None:
        """End all child processes."""
        for name in ("first_runs", "compiling"):
            if (made := self.__dict__.get(name)) is not None:
                made.close()

    def _ready(self, choice: Choice) -> tuple[Any, dict[str, Any]]:
        """The grid and the settings of a choice, whose arguments are then prepared."""
        config = self.case.choices[choice]
        self.restore(config)
        return grid_of(self.launch, config), config.all_kwargs()
