"""What the finals of a search file are: their lengths, seeds, baselines, and the options that every entrant tries.

It imports no torch, because forecasts use it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.schedulers import registry as schedulers

if TYPE_CHECKING:
    from nas.config.schema import GivenBaseline, SearchConfig

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

    tuning_seed: of these tries. seeds: of the finals. Both differ from the search's own seed.
    """

    lengths: tuple[int, ...]
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
    """The finals of a search."""
    from nas.training.recipe import Recipe

    finals = config.finals
    first = config.seed + SEEDS_APART
    values = finals.tune
    if values is None:
        rate = Recipe.read(config.recipe).learning_rate
        values = {"learning_rate": tuple(float(f"{rate * factor:.6g}") for factor in RATES)}
    return Plan(
        lengths=lengths(config),
        tries=tuple(dict(zip(values, each)) for each in itertools.product(*values.values())),
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
    shortest = lengths(config)[0]
    runs[shortest] += own * tries if tries > 1 else 0
    runs[shortest] += groups * len(finals.shapes) * tries if len(finals.shapes) * tries > 1 else 0
    return dict(sorted(runs.items()))
