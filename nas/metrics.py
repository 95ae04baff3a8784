"""The names of metrics. A task's metrics keep their names; those of the runner and those on test data have a prefix.

A unit stores `loss` (of the task, on validation data), `test/loss` (the same on test data) and `run/steps`,
`run/tokens_per_second`, `run/train_loss`, `run/restarted`. Studies made before the prefixes existed have `test_loss`
and `steps`. All readers of metrics use this module, so both work. It imports neither torch nor the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

RUN, TEST = "run/", "test/"
LONGEST = 100  # characters of a name
FORMER_TEST = "test_"
Value = TypeVar("Value", float, float | None)  # a store gives None for what is not finite

OF_THE_RUNNER = ("steps", "tokens_per_second", "train_loss", "restarted")


def of_run(name: str) -> str:
    """The full name of the runner's metric `name`, one of OF_THE_RUNNER."""
    return f"{RUN}{name}"


def on_test(name: str) -> str:
    """The full name of a task's metric on test data."""
    return f"{TEST}{name}"


def is_on_test(name: str) -> bool:
    """Whether `name` is a metric on test data, written as today or as before."""
    return name.startswith((TEST, FORMER_TEST))


OF_THE_BLOCKS = ("halting_steps", "attention_span")  # what blocks report about themselves; some models have them


def current(metrics: Mapping[str, Value]) -> dict[str, Value]:
    """`metrics` with today's names; any version may have stored them."""
    if any(name.startswith((RUN, TEST)) for name in metrics):
        return dict(metrics)
    trained = {"steps", "tokens_per_second"} <= metrics.keys()  # else told from outside, where `steps` is its own
    return {_current(name, metrics, trained): value for name, value in metrics.items()}


def _current(name: str, metrics: Mapping[str, object], trained: bool) -> str:
    if trained and name in OF_THE_RUNNER:
        return of_run(name)
    base = name.removeprefix(FORMER_TEST)
    return on_test(base) if base != name and base in metrics else name


def lookup(metrics: Mapping[str, float | None], name: str) -> float | None:
    """The metric `name`, written as today or as before; None if there is none."""
    for each in (name, *_spellings(name)):
        if each in metrics:
            return metrics[each]
    return None


def known(name: str, declared: Mapping[str, object]) -> bool:
    """Whether `name` is a metric that a unit may have, if the task returns those that are `declared`."""
    names = {
        *declared,
        *OF_THE_BLOCKS,
        *(of_run(each) for each in OF_THE_RUNNER),
        *(on_test(each) for each in declared),
    }
    return not names.isdisjoint({name, *_spellings(name)})


def _spellings(name: str) -> list[str]:
    """Other names of the metric `name`: with the prefix if it has none, and the former name if it has one."""
    if name in OF_THE_RUNNER:
        return [of_run(name)]
    if name.startswith(RUN):
        return [name.removeprefix(RUN)] if name.removeprefix(RUN) in OF_THE_RUNNER else []
    if name.startswith(TEST):
        return [FORMER_TEST + name.removeprefix(TEST)]
    return [on_test(name.removeprefix(FORMER_TEST))] if name.startswith(FORMER_TEST) else []
