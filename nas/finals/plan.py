"""What the finals of a search file are: their lengths, seeds, baselines, and the options that every entrant tries."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nas.config.schema import GivenBaseline, SearchConfig
from nas.finals.expected import RATES, baselines, lengths, winner_lengths
from nas.training.recipe import Recipe

SEEDS_APART = 1000  # from the search's own seed to those of the finals
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
    """The finals of a search."""
    finals = config.finals
    first = config.seed + SEEDS_APART
    values = finals.tune
    if values is None:
        rate = Recipe.read(config.recipe).learning_rate
        values = {"learning_rate": tuple(float(f"{rate * factor:.6g}") for factor in RATES)}
    return Plan(
        lengths=lengths(config),
        winner_lengths=winner_lengths(config),
        tries=tuple(dict(zip(values, each)) for each in itertools.product(*values.values())),
        tuning_seed=first,
        seeds=tuple(range(first + 1, first + 1 + finals.seeds)),
        baselines=baselines(config),
        match=finals.match,
        shapes=finals.shapes,
    )
