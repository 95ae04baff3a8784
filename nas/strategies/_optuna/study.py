"""An Optuna study that forgets trials that were only asked for. Started trials and results stay.

Optuna's own storages keep every asked trial, so a sampler's next proposal would depend on the questions before a crash.
This module imports Optuna, which is slow; `nas.strategies.optuna` imports it when such a strategy is made.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.search_space import IntersectionSearchSpace
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

GENERATION = "generation"
STUDY = 0  # the only study of such a storage


class Ledger(BaseStorage):
    """The trials of one study in memory, addressed by their number."""

    def __init__(self, objectives: int) -> None:
        self.directions = [StudyDirection.MINIMIZE] * objectives
        self.trials: list[FrozenTrial] = []
        self.system: dict[str, Any] = {}
        self.user: dict[str, Any] = {}
        self.complete: Counter[int] = Counter()  # complete trials of each generation of a genetic sampler
        self.newest = 0  # the newest generation with a complete trial

    def generation(self, size: int) -> int:
        """The generation of the next trial, where a full one has `size` complete trials.

        Optuna's samplers count all trials for each new one, which takes a minute for 10,000.
        """
        return self.newest + (self.complete[self.newest] >= size)

    @contextmanager
    def leaving_no_trace(self) -> Iterator[None]:
        """Forget the trials that are created inside, and what a sampler noted about the study."""
        count, system = len(self.trials), dict(self.system)
        try:
            yield
        finally:
            del self.trials[count:]
            self.system = system

    def set_values(self, number: int, values: Sequence[float] | None, failure: TrialState = TrialState.FAIL) -> None:
        """Give a trial its result: `values`, or None for a failure. A newer result replaces an older one."""
        trial = self.trials[number]
        before = trial.state
        trial.state = failure if values is None else TrialState.COMPLETE
        trial.values = None if values is None else list(values)
        trial.datetime_complete = datetime.now()
        if GENERATION in trial.user_attrs:
            generation = trial.user_attrs[GENERATION]
            self.complete[generation] += (trial.state == TrialState.COMPLETE) - (before == TrialState.COMPLETE)
            self.newest = max(self.newest, generation)
            while self.newest and not self.complete[self.newest]:
                self.newest -= 1

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        number = len(self.trials)
        trial = FrozenTrial(
            number=number,
            trial_id=number,
            state=template_trial.state if template_trial else TrialState.RUNNING,
            value=None,
            datetime_start=datetime.now(),
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs=dict(template_trial.system_attrs) if template_trial else {},
            intermediate_values={},
        )
        self.trials.append(trial)
        return number

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self.trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if states == (TrialState.WAITING,):  # Optuna asks this before every trial; only the newest one can be waiting
            return [trial for trial in self.trials[-1:] if trial.state == TrialState.WAITING]
        return [trial for trial in self.trials if states is None or trial.state in states]

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        trial = self.trials[trial_id]
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        self.trials[trial_id].state = state
        if values is not None:
            self.trials[trial_id].values = list(values)
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        self.trials[trial_id].intermediate_values[step] = intermediate_value

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.trials[trial_id].user_attrs[key] = value

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.trials[trial_id].system_attrs[key] = value

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        return STUDY

    def delete_study(self, study_id: int) -> None:
        self.trials.clear()

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self.user[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self.system[key] = value

    def get_study_id_from_name(self, study_name: str) -> int:
        return STUDY

    def get_study_name_from_id(self, study_id: int) -> str:
        return "strategy"

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self.directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self.user

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self.system

    def get_all_studies(self) -> list[Any]:
        return []


class NumberedQMC(optuna.samplers.QMCSampler):
    """A quasi-random sequence indexed by the trial's number. Optuna's own counts the questions instead."""

    place = 0

    def _find_sample_id(self, study: Study, search_space: dict[str, BaseDistribution]) -> int:
        return self.place


def new_study(objectives: int) -> tuple[Study, Ledger]:
    """An empty study and its storage, all objectives minimised. From now on Optuna logs errors only."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ledger = Ledger(objectives)
    return optuna.load_study(study_name="strategy", storage=ledger), ledger


def sampler_classes() -> dict[str, type[optuna.samplers.BaseSampler]]:
    """Optuna's samplers by name, without its abstract bases."""
    found = {name: getattr(optuna.samplers, name) for name in dir(optuna.samplers) if name.endswith("Sampler")}
    return {name: kind for name, kind in sorted(found.items()) if not name.startswith("Base")}


def make_sampler(
    kind: type[optuna.samplers.BaseSampler], options: dict[str, Any], intersection: IntersectionSearchSpace
) -> optuna.samplers.BaseSampler:
    """A new sampler. `intersection` remembers which parameters all trials have; it is kept between samplers.

    The user chose the options, so Optuna does not warn for each proposal that one of them is experimental.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        sampler: Any = kind(**options)
    # A new one compares the parameters of all trials again: 42 ms a proposal at 500 trials of 8 holes.
    if isinstance(getattr(sampler, "_search_space", None), IntersectionSearchSpace):
        sampler._search_space = intersection
    return sampler


def has_generations(kind: type[optuna.samplers.BaseSampler]) -> bool:
    """Whether it is a genetic sampler."""
    return issubclass(kind, optuna.samplers.BaseGASampler)


def remembers_in_trials(kind: type[optuna.samplers.BaseSampler]) -> bool:
    """Whether the sampler writes its generations into trials, so that every trial must pass through it."""
    return issubclass(kind, optuna.samplers.BaseGASampler | optuna.samplers.CmaEsSampler)
