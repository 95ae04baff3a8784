"""Options that a study keeps although its search file leaves them out.

Some defaults depend on the budget (`start` of a strategy) or may change with a release (`rank` of a scheduler). A study
stores the values that it was created with. So its proposals stay the same if the budget grows, and a later release
continues it as it was. Strategies, schedulers and tasks name such options in their attribute `settled`.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nas.config import factory
from nas.config.schema import BARE, Named, SearchConfig
from nas.engine.audit import MOST
from nas.engine.forecast import Rates, affordable
from nas.errors import UsageError
from nas.own.settled import checked, names
from nas.schedulers.registry import registry as schedulers
from nas.strategies import auto as automatic
from nas.strategies.registry import registry as strategies

AUTO = "auto"  # written in a search file, this is the same as leaving the option out
ROUNDING = 1e-9  # of a share times a number of trials
SAMPLES = 9  # random architectures whose median of FLOPs stands in for those of the trials


def settle(config: SearchConfig, study: SearchConfig | None = None) -> SearchConfig:
    """`config` with the options that it leaves out: those of `study`, or today's defaults if the study is new.

    Raises UsageError for an option that is invalid, or if a part settles what a study cannot keep.
    """
    config = _chosen(config, study)
    planned = _planned_trials(config)
    changes: dict[str, object] = {
        "audited": MOST if study is None else study.audited,
        "learned": config.learned if study is None else study.learned,
        "step_tokens": factory.step_tokens(config),
        "task": _part(config, "task", factory.task, study),
        "scheduler": _part(config, "scheduler", factory.scheduler, study),
        "strategy": _strategy(config, config.strategy, config.main_share, planned, study.strategy if study else None),
    }
    if "keep" in config.model_fields_set or study is None:
        changes["keep"] = config.keep
    else:  # an earlier version kept all checkpoints
        changes["keep"] = study.keep
    arms = {}
    for name, arm in config.arms.items():
        known = study.arms[name].strategy if study and name in study.arms else None
        strategy = _strategy(config, arm.strategy, arm.share, planned, known) if known or not study else arm.strategy
        arms[name] = arm.model_copy(update={"strategy": strategy})
    return config.model_copy(update=changes | {"arms": arms})


def _chosen(config: SearchConfig, study: SearchConfig | None) -> SearchConfig:
    """`config` with names in place of `auto`: those that the study keeps, else the strategies that `auto` chooses.

    A search file that names no strategy continues a study with the one that it was created with.
    """
    changes: dict[str, object] = {}
    if study is not None and "strategy" not in config.model_fields_set:
        changes["strategy"] = study.strategy
    elif config.strategy.name == AUTO:
        changes["strategy"] = _automatic(config, config.strategy, study.strategy if study else None)
    arms = {}
    for name, arm in config.arms.items():
        if arm.strategy.name == AUTO:
            known = study.arms[name].strategy if study is not None and name in study.arms else None
            arms[name] = arm.model_copy(update={"strategy": _automatic(config, arm.strategy, known)})
    if arms:
        changes["arms"] = {**config.arms, **arms}
    return config.model_copy(update=changes) if changes else config


def _automatic(config: SearchConfig, written: Named, known: Named | None) -> Named:
    """The strategy in place of `auto`, with the options written for it. known: the one that the study keeps."""
    if known is not None:
        return known.model_copy(update={"options": {**known.options, **written.options}})
    chosen = automatic.chosen(factory.space(config), len(config.objectives))
    if written.options and chosen != "model":
        raise UsageError(f"strategy 'auto': the space has too many holes for a model, so {chosen} takes no learn_from.")
    return Named(name=chosen, options=written.options)


def _strategy(config: SearchConfig, named: Named, share: float, planned: int | None, known: Named | None) -> Named:
    trials = math.ceil(share * planned - ROUNDING) if planned else None
    make = partial(factory.strategy, config, factory.space(config), trials=trials)
    return _settled("strategy", named, make, known)


def _part(config: SearchConfig, kind: str, make: Callable[[SearchConfig], object], study: SearchConfig | None) -> Named:
    """The task or the scheduler of `config`; `kind` is its key in a search file."""
    known: Named | None = None if study is None else getattr(study, kind)
    return _settled(kind, getattr(config, kind), lambda named: make(config.model_copy(update={kind: named})), known)


def _planned_trials(config: SearchConfig) -> int | None:
    """How many trials the budget pays for; None if that depends on the machine."""
    flops = None if config.budget.flops is None else _typical_step_flops(config)
    found = affordable(config, Rates(tokens=factory.step_tokens(config), flops=flops))
    return found and found[0]


def _typical_step_flops(config: SearchConfig) -> float:
    generator, space = random.Random(config.seed), factory.space(config)
    drawn = [space.sample(generator).architecture for _ in range(SAMPLES)]
    return statistics.median(factory.costs(config, each)[1] for each in drawn)


def _settled(kind: str, named: Named, make: Callable[[Named], object], known: Named | None) -> Named:
    """`named` with the options that it settles. make: makes the part. known: the same part as the study keeps it.

    If `known` has the same options, it is returned; it may have one without its name. Raises AnswerProblem if a new
    study could not keep what is settled.
    """
    made, whole = make(named), _by_name(kind, named)
    if known is None:
        return _filled(whole, checked(kind, named.name, made, lambda options: make(_with(whole, options))))
    if known.name != named.name:
        return named
    kept = _by_name(kind, known)
    found = names(kind, named.name, made)  # not the values: those of the study count, whatever today's are
    whole = _filled(whole, {key: kept.options[key] for key in found if key in kept.options})
    return known if kept == whole else whole


def _by_name(kind: str, named: Named) -> Named:
    """`named` with the name of its first option, if this was written without it; a task has no such form."""
    if BARE not in named.options or kind == "task":
        return named
    registry = strategies if kind == "strategy" else schedulers
    return named.model_copy(update={"options": registry.by_name(named.name, named.options)})


def _filled(named: Named, settled: Mapping[str, Any]) -> Named:
    """`named` with the settled options that are not written."""
    return _with(named, {key: value for key, value in settled.items() if named.options.get(key, AUTO) == AUTO})


def _with(named: Named, options: Mapping[str, Any]) -> Named:
    return named.model_copy(update={"options": {**named.options, **options}}) if options else named
