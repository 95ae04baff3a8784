"""What the finals of a search file are: lengths, seeds, baselines, the options that every entrant tries, and the cost.

It imports no torch, because forecasts use it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.schedulers import registry as schedulers

if TYPE_CHECKING:
    from nas.config.schema import Finals, GivenBaseline, SearchConfig

SEEDS_APART = 1000  # from the search's own seed to those of the finals
LONGER = 3  # by default the finals train for the last rung, and this many times as long
RATES = (0.5, 1.0, 2.0)  # times the learning rate of the recipe
STRONG = {  # the baselines of each kind of model, unless the search file names others
    "decoder": ("transformer", "transformer_modern", "primer"),
    "encoder": ("transformer", "transformer_modern"),
    "encoder_decoder": ("transformer", "transformer_modern"),
}

Options = Mapping[str, Any]  # options that replace those of the recipe


@dataclass(frozen=True)
class Plan:
    """lengths: training steps, ascending. tries: the options of a recipe that each entrant tries, at least one.

    winner_lengths: those at which the winner alone is trained. tuning_seed: of these tries. seeds: of the finals. Both
    differ from the search's own seed.
    """

    lengths: tuple[int, ...]
    winner_lengths: tuple[int, ...]
    tries: tuple[Options, ...]
    tuning_seed: int
    seeds: tuple[int, ...]
    baselines: tuple[str | GivenBaseline, ...]
    match: tuple[str, ...]
    shapes: tuple[str, ...]

    @property
    def longest(self) -> int:
        """The length at which the winner is chosen."""
        return self.lengths[-1]


def plan(config: SearchConfig) -> Plan:
    """The finals of a search; see `completed` for options that its file leaves out."""
    finals = config.finals
    first, tune = config.seed + SEEDS_APART, finals.tune or {}  # `completed` has chosen it
    return Plan(
        lengths=lengths(config),
        winner_lengths=winner_lengths(config),
        tries=tuple(dict(zip(tune, each)) for each in itertools.product(*tune.values())),
        tuning_seed=first,
        seeds=tuple(range(first + 1, first + 1 + finals.seeds)),
        baselines=baselines(config),
        match=finals.match,
        shapes=finals.shapes,
    )


def lengths(config: SearchConfig) -> tuple[int, ...]:
    """The training steps of the runs, ascending."""
    if config.finals.steps:
        return config.finals.steps
    top = schedulers.make(config.scheduler.name, **config.scheduler.options).horizon(0)
    return top, LONGER * top


def winner_lengths(config: SearchConfig) -> tuple[int, ...]:
    """The training steps of further runs of the winner alone, ascending: below the longest length, which `nas verdict`
    may have changed, and none that every entrant is trained for."""
    every = lengths(config)
    return tuple(steps for steps in config.finals.winner_steps if steps < every[-1] and steps not in every)


# What the default finals leave out, one after the other, until they cost no more than the search.
LESS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("steps", lambda steps: steps[:1]),
    ("shapes", lambda shapes: shapes[-1:]),
    ("match", lambda match: match[:1]),
    ("tune", lambda tune: {name: values[1:] for name, values in tune.items()}),
    ("baselines", lambda baselines: baselines[:2]),
    ("seeds", lambda seeds: 2),
    ("tune", lambda tune: {}),
    ("baselines", lambda baselines: baselines[:1]),
)


def completed(config: SearchConfig, rate: float, trials: int | None, most: float, evaluation: float) -> Finals:
    """The finals with every option. Those that the search file leaves out are chosen so that all finals cost at most as
    much as the search.

    rate: the learning rate of the recipe. trials: how many the search has, None if it is not known. most: the training
    steps of the search. evaluation: what the evaluation of a run costs, in training steps.
    """
    finals = config.finals
    chosen: dict[str, Any] = {"steps": lengths(config), "baselines": baselines(config)}
    if finals.tune is None:
        chosen["tune"] = {"learning_rate": tuple(float(f"{rate * factor:.6g}") for factor in RATES)}
    found = finals.model_copy(update=chosen)
    for name, less in LESS if finals.top and trials else ():
        changed = config.model_copy(update={"finals": found})
        if sum(units * (steps + evaluation) for steps, units in expected_runs(changed, trials or 1).items()) <= most:
            break
        if name not in finals.model_fields_set:
            found = found.model_copy(update={name: less(getattr(found, name))})
    return found


def kind(config: SearchConfig) -> str:
    """decoder, encoder or encoder_decoder, as the space says."""
    found = re.search(r"^kind: *(\w+)", config.space, re.MULTILINE)
    return found[1] if found else "decoder"


def baselines(config: SearchConfig) -> tuple[str | GivenBaseline, ...]:
    """The names in the search file, or the strong baselines of this kind of model."""
    named = config.finals.baselines
    return STRONG.get(kind(config), ()) if named is None else named


def expected_runs(config: SearchConfig, trials: int) -> dict[int, int]:
    """How many runs of each length follow a search of `trials` trials, at most, ascending.

    Baselines that turn out to be the same model count twice.
    """
    finals = config.finals
    if not finals.top:
        return {}
    tries = math.prod(map(len, finals.tune.values())) if finals.tune is not None else len(RATES)
    own = min(finals.top, trials) + len(config.arms)
    groups = len(baselines(config)) * len(finals.match)
    runs: Counter[int] = Counter()
    for steps in lengths(config):
        runs[steps] += (own + groups) * finals.seeds
    for steps in winner_lengths(config):
        runs[steps] += finals.seeds
    shortest = lengths(config)[0]
    runs[shortest] += own * tries if tries > 1 else 0
    runs[shortest] += groups * len(finals.shapes) * tries if len(finals.shapes) * tries > 1 else 0
    return dict(sorted(runs.items()))
