"""Every sampler of Optuna as a strategy: `optuna: TPESampler`, or `optuna: {sampler: NSGAIISampler, ...options}`.

The space is a define-by-run function: each active hole is one `suggest`, named by the hole's path. A new sampler,
seeded from the trial's number, makes each proposal, so the proposals are the same after a restart. A started trial is a
running trial of Optuna's study until its result is told.
"""

from __future__ import annotations

import inspect
from functools import partial
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING, Any

from nas.errors import UsageError
from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, Result, SearchSpace, Started, generator
from nas.strategies.population import AUTO, extra_mutations, mutated, random_start
from nas.strategies.registry import strategy
from searchspace.errors import nearest
from searchspace.tree import Hole

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from searchspace.space.point import Point

UNUSABLE = {
    "GridSampler": "it needs a grid besides the space; BruteForceSampler tries every architecture",
    "PartialFixedSampler": "it wraps another sampler; fill the hole in the space instead",
}
AS_WORST = ("GPSampler", "CmaEsSampler")  # these know complete trials only: a failure has the worst values so far
START = "n_startup_trials"  # what Optuna calls the number of random trials


@strategy("optuna")
class Optuna(StrategyBase):
    """sampler: the name of a class in `optuna.samplers`. All other options go to the sampler, which learns from failed
    trials too. A choice of numbers is an ordered number."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        trials: int | None = None,
        sampler: str = "TPESampler",
        **options: Any,
    ) -> None:
        from nas.strategies._optuna import holes, study
        from nas.strategies._optuna import options as sampler_options

        self._holes = holes
        self._optuna = study
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.sampler = sampler
        self.kind = self._find(sampler, objectives)
        self.options = sampler_options.checked(self.kind, options, objectives)
        self._worst: tuple[float, ...] | None = None  # the worst value of each objective
        random_start = self._random_start(trials)
        self.options |= random_start
        self.resolved = random_start
        self.study, self.ledger = study.new_study(objectives)
        self._base: tuple[int, Point] | None = None  # the number of a trial and what the sampler proposed for it
        self._places: dict[int, int] = {}  # number of the trial -> its index in Optuna's study
        self._intersection = study.IntersectionSearchSpace()
        self._any: Any = self._fresh(generator(seed, 0, 0))  # reports a wrong option now and not at the first proposal

    def ask(self, number: int, count: int = 1, attempt: int = 0) -> list[Proposal]:
        with self.ledger.leaving_no_trace():
            return super().ask(number, count, attempt)

    def suppose(self, started: Started) -> None:
        assert started.point is not None
        self._enter(started.point)

    def start(self, started: Started) -> None:
        super().start(started)
        if started.point is not None and started.number not in self._places:
            self._base = None
            self._places[started.number] = self._enter(started.point)

    def learn(self, result: Result, failed: bool) -> None:
        self._base = None
        if result.point is None:
            return
        if result.number not in self._places:
            self._places[result.number] = self._enter(result.point)
        elif failed:
            # The old one would still count the trial that failed now.
            self._intersection = self._optuna.IntersectionSearchSpace()
        place = self._places[result.number]
        if not failed:
            self.ledger.set_values(place, result.values)
        elif self.sampler in AS_WORST and self._worst:
            self.ledger.set_values(place, self._worst)
        else:
            self.ledger.set_values(place, None, self._optuna.TrialState.PRUNED)
        if not failed and result.values is not None:
            self._worst = tuple(map(max, zip(self._worst or result.values, result.values)))

    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        """The sampler's point first, then mutations of it: a converged sampler would propose the same point again.

        Raises UsageError if the sampler cannot sample this space.
        """
        if self.sampler == "BruteForceSampler":  # it never repeats a point, and must not miss one
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

    def _random_start(self, trials: int | None) -> dict[str, int]:
        """The number of random trials that the sampler starts with, if its own default is too many for `trials`."""
        own = inspect.signature(self.kind).parameters.get(START)
        if trials is None or own is None or START in self.options:
            return {}
        return {START: min(own.default, random_start(AUTO, trials))}

    def _enter(self, point: Point) -> int:
        """Put a point into Optuna's study as if its sampler had chosen it -> its index there."""
        filled: dict[str, Hole] = {}

        def record(path: str, hole: Hole) -> Any:
            filled[path] = hole
            return point.choices[path]

        self.space.realise(record)
        place = self.ledger.create_new_trial(self._optuna.STUDY)
        if self._optuna.remembers_in_trials(self.kind):
            self._remember(place)
        for path, hole in filled.items():
            distribution = self._holes.distribution(hole)
            value = distribution.to_internal_repr(self._holes.parameter(hole, point.choices[path]))
            self.ledger.set_trial_param(place, path, value, distribution)
        return place

    def _remember(self, place: int) -> None:
        """Let the sampler note in a new trial what it keeps there: the generation, or the state of CMA-ES."""
        trial = self.ledger.get_trial(place)
        self.study._thread_local.cached_all_trials = None  # else Optuna looks at the trials of an earlier question
        if not self._optuna.has_generations(self.kind):
            sampler = self._fresh(generator(self.seed, place, -1))
            sampler.sample_relative(self.study, trial, sampler.infer_relative_search_space(self.study, trial))
            return
        generation = self.ledger.generation(self._any.population_size)
        trial.system_attrs[self._any._get_generation_key()] = generation
        trial.user_attrs[self._optuna.GENERATION] = generation
        if f"{self._any._get_parent_cache_key_prefix()}{generation}" not in self.ledger.system:
            genetic: Any = self._fresh(generator(self.seed, place, -1))
            genetic.get_parent_population(self.study, generation)  # notes them in the study

    def _fresh(self, rng: Random, number: int = 0) -> BaseSampler:
        if self.sampler == "QMCSampler":  # all points of one sequence: the seed stays, and scrambling uses it
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
        return known[name]
