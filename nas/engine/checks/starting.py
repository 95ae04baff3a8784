"""Whether a search can start: it can train here, its finals can be decided, and its objectives can be evaluated.

`nas plan` makes the same checks, so both commands reject the same files.
"""

from __future__ import annotations

from collections.abc import Sequence

from nas.config import checks, factory
from nas.config.schema import SearchConfig
from nas.engine.forecast import forecast
from nas.errors import NasError, UsageError
from nas.objectives import contract
from nas.objectives.contract import Objective
from nas.own.answers import shown
from nas.training.unit import device_here
from nas.upkeep.places import check_checkpoints, check_storage

PLACES = ("runner", "device", "checkpoints")  # where units run, and where they write


def check_device(config: SearchConfig) -> None:
    """Raise UsageError if units run on this machine, and it does not have their device. Workers of Ray may have it."""
    if config.runner.name == "inline":
        device_here(config.device)


def check_trains(config: SearchConfig, *, here: bool = True) -> None:
    """Raise NasError if a search could not train: its device or the place of its checkpoints is missing, or its
    scheduler gives a forecast that breaks the contract. here: the runner is the one that the search file names.
    """
    if here:
        check_device(config)
    check_storage(config.storage)
    check_checkpoints(config.checkpoints)
    forecast(config)


def usable(config: SearchConfig, study: SearchConfig, *, here: bool) -> tuple[SearchConfig, str]:
    """`config` for a search that only shows the result of `study`, and "". If it could not train as it is, it has the
    places of the study, which stay stored: (such a config, why). here: as in `check_trains`.
    """
    places = {name: getattr(study, name) for name in PLACES}
    if all(getattr(config, name) == place for name, place in places.items()):
        return config, ""
    try:
        check_trains(config, here=here)
    except NasError as error:
        return config.model_copy(update=places), str(error)
    return config, ""


def check_runner(runner: object) -> None:
    """Raise UsageError if `runner` cannot run units; None is the runner that the search file names."""
    missing = [name for name in ("submit", "wait", "close") if not callable(getattr(runner, name, None))]
    if runner is not None and missing:
        raise UsageError(
            f"runner must be an object that runs units (`nas.runners.contract.Runner`), but got {shown(runner)}. The "
            "search file chooses a runner by name, as in `runner: inline`."
        )


def check_finals(config: SearchConfig, *, known: bool) -> None:
    """Raise UsageError if the first objective cannot decide the finals; a file says so when it is read.

    known: the study exists.
    """
    try:
        checks.check_finals(config, factory.objectives(config), known=known)
    except ValueError as error:
        raise UsageError(f"objectives: {error}.") from None


def check_new(config: SearchConfig, objectives: Sequence[Objective]) -> None:
    """Raise UsageError if an objective of a new study cannot be evaluated on this machine, or is a metric that the
    task does not return.
    """
    for each in objectives:
        each.begin(contract.Search())
    try:
        checks.check_returned(config, objectives)
    except ValueError as error:
        raise UsageError(f"objectives: {error}.") from None
