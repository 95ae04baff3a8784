"""Resolves a search file: every option with its default written out, and what a search of it has before it.

`nas plan` resolves; `nas search` resolves, and then runs. A study keeps the resolved search file in its row, so neither
a larger budget nor a later release changes an option that the file leaves out.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nas.config.parts import parts
from nas.config.schema import Finals, Named, SearchConfig
from nas.engine.ending import have_ended, is_over
from nas.engine.forecast import Rates, affordable, forecast
from nas.engine.learned import with_learned
from nas.engine.proposer import evidence
from nas.errors import UsageError
from nas.finals.plan import completed
from nas.objectives.contract import Search
from nas.objectives.registry import registry as objectives
from nas.registry import Registry
from nas.runners.registry import registry as runners
from nas.schedulers.registry import registry as schedulers
from nas.store import Reader, Study
from nas.strategies import auto as automatic
from nas.strategies.registry import registry as strategies
from nas.tasks import registry as tasks
from nas.tasks.contract import Split
from nas.training import recipe as recipes
from nas.training.unit import device_here
from nas.upkeep.places import check_checkpoints, check_storage
from nas.work import PASSES, SHARE
from searchspace.errors import SpaceError
from searchspace.space.space import Space
from searchspace.space.spacediff import diff

AUTO = "auto"  # written in a search file, this is the same as leaving the option out
ROUNDING = 1e-9  # of a share times a number of trials
HELD_OUT: tuple[Split, ...] = ("validation", "test")
SAMPLES = 9  # random architectures whose median of FLOPs stands in for those of the trials

# What a running study keeps, because its trials could not be compared otherwise. What the file leaves out of it is as
# the study has it. Besides, the space and the blocks may grow; all other keys may change.
STAYS = ("task", "objectives", "strategy", "scheduler", "arms", "recipe", "seed")
# What a study that only shows its results keeps: nothing runs there, and nothing is written there.
PLACES = ("runner", "device", "checkpoints")


@dataclass(frozen=True)
class Resolved:
    """A search file with every option written out.

    study: the one that it continues; None if it is new. space_grows: whether its space is larger than that of the
    study. over: whether the search of the study has ended and gets no further trial. trains: whether something may be
    trained; if not, the results of the study are only shown.
    """

    config: SearchConfig
    study: Study | None = None
    space_grows: bool = False
    over: bool = False
    trains: bool = True

    @property
    def row(self) -> dict[str, Any]:
        """What the study stores: everything but the URL of the database, which may hold a password."""
        return self.config.model_dump(mode="json", exclude={"storage"})


def resolve(config: SearchConfig, store: Reader | None = None, *, here: bool = True, again: bool = False) -> Resolved:
    """What a search of `config` has before it; nothing is written.

    store: the study database; None if it does not exist yet. here: whether units run where the search file says. again:
    failed trials are to be tried again, so there is something to train.

    Raises UsageError or SpaceError if the study in `store` is another search, an option is invalid, no checkpoint could
    be written, the device of the units is missing, or an objective cannot be evaluated on this machine.
    """
    check_storage(config.storage)
    study = None if store is None else next((each for each in store.studies() if each.name == config.study), None)
    if study is None or store is None:
        found = Resolved(_complete(with_learned(config, store), None))
    else:
        found = _continued(store, study, config, again=again)
    if found.trains:
        if here and found.config.runner.name == "inline":  # workers of Ray may have another device
            device_here(found.config.device)
        check_checkpoints(found.config.checkpoints)
        forecast(found.config)
        known = Search() if study is None or store is None else Search(evidence=partial(evidence, store, study))
        for each in parts(found.config).objectives:
            each.begin(known)
    return found


def _continued(store: Reader, study: Study, config: SearchConfig, *, again: bool) -> Resolved:
    before = SearchConfig.stored(study.config)
    _check_blocks(study, before, config)
    config = _complete(config, before)
    _check_same(study, before, config)
    stored = Resolved(config).row
    over = not again and is_over(store, study, stored)
    trains = not (over and have_ended(store, study, stored["finals"]))
    if not trains:
        config = config.model_copy(update={name: getattr(before, name) for name in PLACES})
    return Resolved(config, study, _has_grown(store, study, config), over, trains)


def _complete(config: SearchConfig, before: SearchConfig | None) -> SearchConfig:
    """`config` with every option written out. before: the search file of its study, whose options those are that
    `config` leaves out.
    """
    changes: dict[str, Any] = {}
    if before is not None:
        changes = {name: getattr(before, name) for name in STAYS if name not in config.model_fields_set}
        config = config.model_copy(update=changes | {"learned": before.learned})
    task, of_task = parts(config).prepared_task, {}
    if before is not None and before.task.name == config.task.name:
        of_task = before.task.options
    ((_, options),) = tasks.complete(config.task.written(), config.task_source, of_task).items()
    known = (*(before.objectives if before else ()), *(None for _ in config.objectives))
    changes = {
        "task": Named(name=config.task.name, options=options),
        "objectives": tuple(map(partial(_named, objectives), config.objectives, known)),
        "scheduler": _named(schedulers, config.scheduler, before.scheduler if before else None),
        "runner": _named(runners, config.runner),
        "recipe": recipes.complete(config.recipe, before.recipe if before else {}),
        "step_tokens": task.shape.rows,
        "data_facts": before.data_facts if before else task.data_facts() or None,
    }
    config = config.model_copy(update=changes)
    trials = None if before else _planned_trials(config)
    arms = {}
    for name, arm in config.arms.items():
        of_arm = before.arms[name].strategy if before and name in before.arms else None
        arms[name] = arm.model_copy(update={"strategy": _strategy(config, arm.strategy, arm.share, trials, of_arm)})
    of_main = before.strategy if before else None
    strategy = _strategy(config, config.strategy, config.main_share, trials, of_main)
    config = config.model_copy(update={"strategy": strategy, "arms": arms})
    return config.model_copy(update={"finals": _finals(config, _planned_trials(config) if before else trials)})


def _finals(config: SearchConfig, trials: int | None) -> Finals:
    """The finals with every option; see `nas.finals.plan.completed`."""
    task, ahead = parts(config).prepared_task, forecast(config, trials)
    evaluation = sum(map(task.held_out_positions, HELD_OUT)) / (PASSES * task.shape.rows)
    steps = (1 + SHARE) * sum(units * steps for units, steps in zip(ahead.units, ahead.steps))
    return completed(config, recipes.Recipe.read(config.recipe).learning_rate, trials, steps, evaluation)


def _strategy(config: SearchConfig, named: Named, share: float, planned: int | None, known: Named | None) -> Named:
    """The strategy of the search or of an arm, with its options and a name in place of `auto`.

    planned: how many trials the search is planned to have. known: the strategy as the study has it.
    """
    space = parts(config).space
    if named.name == AUTO:
        chosen = automatic.chosen(space, len(config.objectives)) if known is None else known.name
        if named.options and chosen != "model":
            raise UsageError(
                f"strategy 'auto': the space has too many holes for a model, so {chosen} takes no learn_from."
            )
        named = named.model_copy(update={"name": chosen})
    found = _named(strategies, named, known)
    if known is not None:
        return found
    trials = math.ceil(share * planned - ROUNDING) if planned else None
    made = parts(config).strategy(found, space, trials=trials)
    left = {key: each for key, each in getattr(made, "resolved", {}).items() if found.options.get(key) in (AUTO, None)}
    return found.model_copy(update={"options": {**found.options, **left}})


def _named(registry: Registry, named: Named, known: Named | None = None) -> Named:
    """`named` with every option: those of `known` where it leaves them out or says `auto`, else the defaults."""
    before = known.options if known is not None and known.name == named.name else {}
    written = {key: value for key, value in named.options.items() if value != AUTO or key not in before}
    return named.model_copy(update={"options": registry.complete(named.name, written, before)})


def _planned_trials(config: SearchConfig) -> int | None:
    """How many trials the budget pays for; None if that depends on the machine."""
    flops = None
    if config.budget.flops is not None:
        generator, built = random.Random(config.seed), parts(config)
        drawn = [built.space.sample(generator).architecture for _ in range(SAMPLES)]
        flops = statistics.median(built.costs(each)[1] for each in drawn)
    found = affordable(config, Rates(tokens=config.step_tokens, flops=flops))
    return found and found[0]


def _check_same(study: Study, before: SearchConfig, config: SearchConfig) -> None:
    """Raise UsageError if trials of `config` could not be compared with those of the study."""
    changed = [
        f"{name} was {_short(then)}, is {_short(now)}"
        for name in STAYS
        if (then := _as_written(before, name)) != (now := _as_written(config, name))
    ]
    if before.task_source != config.task_source and not changed:
        changed = [f"the text of the task file {config.task.name} has changed"]
    if changed:
        raise UsageError(
            f"The study {study.name!r} was started with other settings, so new trials could not be compared with its "
            f"own: {'; '.join(changed)}. Restore them, or give the search a new name (study: ...)."
        )
    found = parts(config).prepared_task.data_hash
    if (study.data_hash or "") != found:
        raise UsageError(
            f"The data of study {study.name!r} have changed since it started (SHA-256 {_digits(study.data_hash)} "
            f"then, {_digits(found)} now), so new trials could not be compared with its own. Give the search a new "
            "name (study: ...)."
        )


def _as_written(config: SearchConfig, name: str) -> Any:
    """A key as it is written in a search file.

    Of the task's files only the names count: their content is compared by its hash, and folders differ by machine.
    """
    value = getattr(config, name)
    if isinstance(value, tuple):
        return [each.written() for each in value]
    if name == "arms":
        return {arm: each.written() for arm, each in value.items()}
    written = value.written() if isinstance(value, Named) else value
    return _without_folders(written) if name == "task" else written


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_folders(key): _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _check_blocks(study: Study, before: SearchConfig, config: SearchConfig) -> None:
    """Raise UsageError if a text of the user's own blocks is missing; files may be renamed and added."""
    texts = set(config.blocks.values())
    missing = [name for name, text in before.blocks.items() if text not in texts]
    if missing:
        known = all(name in config.blocks for name in missing)
        what = "has changed" if known else "is not among `blocks`, or has changed,"
        raise UsageError(
            f"The text of {', '.join(missing)} {what} since the study {study.name!r} started, so new trials could "
            "not be compared with its own. Restore it, or give the search a new name (study: ...)."
        )


def _has_grown(store: Reader, study: Study, config: SearchConfig) -> bool:
    """Whether the space is larger than before. Raises SpaceError if it has lost points that trials may have."""
    newest = store.space_versions(study.id)[-1].text
    if newest == config.space:
        return False
    change = diff(Space.parse(newest, "the study's space"), parts(config).space)
    if not change.larger:
        raise SpaceError(
            f"The space of study {study.name!r} may grow but not shrink; gone: {'; '.join(change.removed)}. "
            "Give the search a new name (study: ...)."
        )
    return True


def _digits(hash: str | None) -> str:
    return hash[:12] if hash else "none"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
