"""Optuna's samplers (TPE unless another is given) as a tuning strategy; Optuna is imported when it is used.

Akiba et al. 2019, "Optuna", https://arxiv.org/abs/1907.10902. A proposal that
violates the constraints, or that is already known, is reported to the sampler as such; after `TRIES` of them a random
configuration is proposed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy
from tuner.strategies.registry import strategy

TRIES = 20


@strategy("optuna")
class OptunaSampler(Strategy):
    def __init__(
        self,
        space: TuningSpace,
        seed: int = 0,
        first: tuple[int, ...] = (),
        hints: Hints | None = None,
        sampler: Any | None = None,
    ) -> None:
        import optuna

        super().__init__(space, seed, first, hints)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.distributions: dict[str, Any] = {
            name: optuna.distributions.CategoricalDistribution(list(values))
            for name, values in space.parameters.items()
        }
        self.failed = optuna.trial.TrialState.FAIL
        self.study = optuna.create_study(sampler=sampler or optuna.samplers.TPESampler(seed=seed))
        self.create = optuna.trial.create_trial
        self.slowest = 1.0

    def propose(self) -> int:
        for _ in range(TRIES):
            trial = self.study.ask(self.distributions)
            try:
                number = self.space.number(trial.params)
            except ValueError:
                self.study.tell(trial, state=self.failed)
                continue
            known = self.results.get(number)
            if number not in self.results:
                self.study.tell(trial, state=self.failed)  # its result comes with `tell`
                return number
            self.study.tell(trial, np.log(known) if known is not None else np.log(self.slowest))
        return self.random_unknown()

    def tell(self, number: int, milliseconds: float | None) -> None:
        super().tell(number, milliseconds)
        self.slowest = max(self.slowest, milliseconds or 0.0)
        value = float(np.log(milliseconds if milliseconds is not None else self.slowest))
        parameters = self.space.configuration(number)
        self.study.add_trial(self.create(params=parameters, distributions=self.distributions, value=value))
