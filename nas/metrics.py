"""The names of metrics. A task's metrics keep their names; those of the runner and those on test data have a prefix.

A unit stores `loss` (of the task, on validation data), `test/loss` (the same on test data) and `run/steps`,
`run/tokens_per_second`, `run/train_loss`, `run/restarted`. A task's metric cannot have a name of the runner
(`name_problem`). This module imports neither torch nor the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

RUN, TEST = "run/", "test/"
LONGEST = 100  # characters of a name
CURVE = "training loss"  # the store keeps the losses of a training under this name

OF_THE_RUNNER = ("steps", "tokens_per_second", "train_loss", "restarted")


def of_run(name: str) -> str:
    """The full name of the runner's metric `name`, one of OF_THE_RUNNER."""
    return f"{RUN}{name}"


def on_test(name: str) -> str:
    """The full name of a task's metric on test data."""
    return f"{TEST}{name}"


def is_on_test(name: str) -> bool:
    """Whether `name` is a metric on test data."""
    return name.startswith(TEST)


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


def known(name: str, declared: Mapping[str, object]) -> bool:
    """Whether `name` is a metric that a unit may have, if the task returns those that are `declared`."""
    names = {
        *declared,
        *OF_THE_BLOCKS,
        *(of_run(each) for each in OF_THE_RUNNER),
        *(on_test(each) for each in declared),
    }
    return name in names
