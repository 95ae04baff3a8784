"""Every sampler of Optuna as a strategy: `optuna: TPESampler`, or `optuna: {sampler: NSGAIISampler, ...options}`.

The space is run as a define-by-run function: every hole on the way is one `suggest`, named by the hole's path. A fresh
sampler, seeded from the trial's number, makes each proposal, so a restart makes the same ones.
"""

from __future__ import annotations

import inspect
from functools import partial
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING, Any

from nas.errors import UsageError
from nas.strategies.contract import Proposal, Result, SearchSpace, generator
from nas.strategies.population import Failures, extra_mutations, mutated
from nas.strategies.registry import strategy
from searchspace.errors import nearest
from searchspace.tree import Hole

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from searchspace.space.space import Point

UNUSABLE = {
    "GridSampler": "it wants a grid of its own beside the space; BruteForceSampler tries every architecture",
    "PartialFixedSampler": "it wraps another sampler; fill the hole in the space instead",
}


@strategy("optuna")
class Optuna:
    """`sampler`: the name of one of `optuna.samplers`; all other options go to it."""

    def __init__(
        self, space: SearchSpace, *, seed: int, objectives: int = 1, sampler: str = "TPESampler", **options: Any
    ) -> None:
        from nas.strategies import _optuna_holes, _optuna_study

        self._holes = _optuna_holes
        self._optuna = _optuna_study
        self.space = space
        self.seed = seed
        self.sampler = sampler
        self.options = options
        self.kind = self._find(sampler, objectives)
        self.study, self.ledger = _optuna_study.new_study(objectives)
        self.failures = Failures()
        self._base: tuple[int, Point] | None = None  # what the results so far made of a trial: its number and point
        self._places: dict[int, int] = {}  # number of the trial -> its place in Optuna's study
        self._intersection = _optuna_study.IntersectionSearchSpace()
        self._fresh(generator(seed, 0, 0))  # a wrong option is reported now, not at the first proposal

    def ask(self, number: int, attempt: int = 0) -> Proposal:
        rng = generator(self.seed, number, attempt)
        return self.failures.avoid(lambda tried: self._propose(rng, number, tried), attempt)

    def tell(self, result: Result) -> None:
        self._base = None
        failed = self.failures.learn(result)
        if result.point is None:
            return
        if result.number not in self._places:
            self._places[result.number] = self._enter(result.point)
        elif failed:
            self._intersection = self._optuna.IntersectionSearchSpace()  # it would still count what has now failed
        self.ledger.set_values(self._places[result.number], None if failed else result.values)

    def _propose(self, rng: Random, number: int, tried: int) -> Proposal:
        """A converged sampler proposes the same again and again, so only its first word counts: mutations follow."""
        if self.sampler == "BruteForceSampler":  # it never repeats itself, and must miss nothing
            return Proposal(self._sampled(rng, number), self.sampler)
        if self._base is None or self._base[0] != number:
            self._base = number, self._sampled(generator(self.seed, number, 0), number)
        if not tried:
            return Proposal(self._base[1], self.sampler)
        point = mutated(self.space, self._base[1], rng, 1 + extra_mutations(tried))
        return Proposal(point, f"{self.sampler} and mutation")

    def _sampled(self, rng: Random, number: int) -> Point:
        self.study.sampler = self._fresh(rng, number)
        with self.ledger.leaving_no_trace():
            trial = self.study.ask()
            try:
                return self.space.realise(partial(self._holes.suggest, trial))
            except ValueError as error:
                raise UsageError(f"Optuna's {self.sampler} cannot sample this space: {error}") from error

    def _enter(self, point: Point) -> int:
        """Put a point into Optuna's study as if its sampler had chosen it; its place there."""
        filled: dict[str, Hole] = {}

        def record(path: str, hole: Hole) -> Any:
            filled[path] = hole
            return point.choices[path]

        self.space.realise(record)
        if self._optuna.remembers_in_trials(self.kind):
            place = self.study.ask().number
            trial, sampler = self.ledger.get_trial(place), self._fresh(generator(self.seed, place, -1))
            sampler.sample_relative(self.study, trial, sampler.infer_relative_search_space(self.study, trial))
        else:
            place = self.ledger.create_new_trial(self._optuna.STUDY)
        for path, hole in filled.items():
            distribution = self._holes.distribution(hole)
            value = distribution.to_internal_repr(self._holes.parameter(hole, point.choices[path]))
            self.ledger.set_trial_param(place, path, value, distribution)
        return place

    def _fresh(self, rng: Random, number: int = 0) -> BaseSampler:
        if self.sampler == "QMCSampler":  # the points of one sequence: the seed stays, and scrambling makes it matter
            sampler = self._made(self._optuna.NumberedQMC, {"scramble": True, **self.options, "seed": self.seed})
            sampler.place = number
            return sampler
        return self._made(self.kind, {**self.options, "seed": rng.randrange(2**32)})

    def _made(self, kind: Any, options: dict[str, Any]) -> Any:
        try:
            return self._optuna.make_sampler(kind, options, self._intersection)
        except (ValueError, TypeError, AttributeError, NotImplementedError) as error:
            raise UsageError(f"Optuna's {self.sampler}: {error}") from error

    def _find(self, name: str, objectives: int) -> Any:
        known = self._optuna.sampler_classes()
        if name not in known:
            usable = ", ".join(sorted(set(known) - set(UNUSABLE)))
            raise UsageError(f"Optuna has no sampler {name!r}.{nearest(name, known)} Known: {usable}.")
        if name in UNUSABLE:
            raise UsageError(f"Optuna's {name} cannot be a strategy: {UNUSABLE[name]}.")
        if name == "CmaEsSampler" and objectives > 1:
            raise UsageError(f"Optuna's {name} takes one objective, but the search has {objectives}.")
        if name == "CmaEsSampler" and find_spec("cmaes") is None:
            raise UsageError(f"Optuna's {name} needs the package cmaes, which is not installed: pip install cmaes.")
        accepted = [key for key in inspect.signature(known[name]).parameters if key != "seed"]
        for key in self.options:
            if key not in accepted:
                known_options = ", ".join(accepted)
                raise UsageError(
                    f"Optuna's {name} has no option {key!r}.{nearest(key, accepted)} Its options: {known_options}."
                )
        return known[name]
