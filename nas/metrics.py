"""The names of metrics. A task's metrics keep their names; those of the runner and those on test data have a prefix.

A unit stores `loss` (of the task, on validation data), `test/loss` (the same on test data) and `run/steps`,
`run/tokens_per_second`, `run/train_loss`, `run/restarted`. Studies made before the prefixes existed have `test_loss`
and `steps`. All readers of metrics use this module, so both work. It imports neither torch nor the store.

A task's metric cannot have a name of the runner (`name_problem`). Older versions accepted such names, so stored ones
are read without this check.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

RUN, TEST = "run/", "test/"
LONGEST = 100  # characters of a name
FORMER_TEST = "test_"
CURVE = "training loss"  # the store keeps the losses of a training under this name
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


def name_problem(name: object) -> str:
    """Why a task cannot return a metric of this name, as a sentence; '' if it can."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST:
        return f"A metric needs a name of 1 to {LONGEST} printable characters, not {str(name)[:40]!r}."
    if name == CURVE:
        why = "under this name the search keeps the losses of the training"
    elif name in OF_THE_BLOCKS:
        why = "this is a name of the runner: the blocks of a model report this number"
    elif name.startswith((RUN, TEST)):
        why = f"names that begin with {RUN} or {TEST} are names of the runner, such as {of_run('steps')}"
    else:
        return ""
    return f"A metric of a task cannot be called {name!r}: {why}. Give it another name."


def told_problem(name: object, told: Collection[object]) -> str:
    """Why the user's own training loop cannot tell a metric of this name, as a sentence; '' if it can.

    told: all names that it tells. It may tell what blocks report, and `test/NAME` together with NAME.
    """
    base = name.removeprefix(TEST) if isinstance(name, str) else name
    return "" if name in OF_THE_BLOCKS else name_problem(base if base in told else name)


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
