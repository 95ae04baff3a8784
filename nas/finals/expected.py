"""How much work the finals of a search file are: their lengths, baselines and runs.

It imports no torch, because forecasts use it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from nas.schedulers import registry as schedulers

if TYPE_CHECKING:
    from nas.config.schema import GivenBaseline, SearchConfig

LONGER = 3  # by default the finals train for the last rung, and this many times as long
RATES = (0.5, 1.0, 2.0)  # times the learning rate of the recipe
STRONG = {  # the baselines of each kind of model, unless the search file names others
    "decoder": ("transformer", "transformer_modern", "primer"),
    "encoder": ("transformer", "transformer_modern"),
    "encoder_decoder": ("transformer", "transformer_modern"),
}


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
