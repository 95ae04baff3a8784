"""Replays a search from its log: does the strategy, told what it had been told, propose every trial again?

A proposal follows from the space, the seed, the number of the trial, what was tried before and the results told so far.
The store keeps all of that, whoever ran the search and in whatever order its units came back; so a search on a cluster
can be followed, and debugged, in one process without training anything.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine.proposer import Exhausted, Source, minimised, point_of
from nas.store import Store, Study, Trial, Unit
from nas.strategies.contract import Result


@dataclass(frozen=True)
class Difference:
    """A trial that was proposed otherwise this time; the hashes of the architectures, `proposed` None for nothing."""

    trial: int
    known_results: int
    operator: str
    recorded: str
    proposed: str | None
    proposed_by: str | None

    def __str__(self) -> str:
        now = f"{self.proposed[:12]} ({self.proposed_by})" if self.proposed else "nothing"
        return (
            f"trial {self.trial}, proposed after {self.known_results} results, is {self.recorded[:12]} "
            f"({self.operator}), but now {now} is proposed"
        )


@dataclass(frozen=True)
class Replay:
    """What came of a replay. The trials that the user brought along (baselines) are not proposed, only counted."""

    trials: int
    given: int
    results: int
    differences: tuple[Difference, ...]  # by the number of the trial

    @property
    def same(self) -> bool:
        return not self.differences

    def as_dict(self) -> dict[str, Any]:
        return {"same": self.same, **asdict(self)}

    def as_text(self) -> str:
        counted = f"{self.trials} trials from {self.results} results ({self.given} given, not proposed)"
        if self.same:
            return f"The same: {counted} are proposed again as they are recorded."
        return f"Not the same: of {counted}, {len(self.differences)} differ. The first: {self.differences[0]}."


class _Before:
    """The architectures that trials before a number have; a Collection for `in`."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._numbers = {trial.architecture_hash: trial.number for trial in trials}
        self.number = 0

    def __contains__(self, hash: object) -> bool:
        return self._numbers.get(str(hash), math.inf) < self.number

    def __iter__(self) -> Iterator[str]:
        return (hash for hash, number in self._numbers.items() if number < self.number)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def replay(store: Store, study: Study) -> Replay:
    """Propose every trial of `study` again, with what its strategy knew then."""
    config = SearchConfig(**study.config)
    trials = store.trials(study.id, purposes=("search",))
    results = [result for result in store.results_since(study.id) if result.purpose == "search"]
    texts = {version.number: version.text for version in store.space_versions(study.id)}
    proposed = sorted(
        (trial for trial in trials if trial.operator != "baseline"),
        key=lambda trial: (trial.space_version, trial.known_results, trial.number),
    )
    before = _Before(trials)
    found = [
        difference
        for version, group in groupby(proposed, key=lambda trial: trial.space_version)
        for difference in _differences(config, texts[version], list(group), results, before)
    ]
    found.sort(key=lambda difference: difference.trial)
    return Replay(len(trials), len(trials) - len(proposed), len(results), tuple(found))


def _differences(
    config: SearchConfig, text: str, trials: Sequence[Trial], results: Sequence[Unit], before: _Before
) -> Iterator[Difference]:
    """The differences among the `trials` of one version of the space, which are in the order of what was known."""
    space = factory.space(config.model_copy(update={"space": text}))
    objectives = factory.objectives(config)
    source = Source(space, factory.strategy(config, space))
    told = 0
    for trial in trials:
        for result in results[told : trial.known_results]:
            point = point_of(space, result.choices, result.architecture, result.architecture_hash)
            values = minimised(objectives, result)
            source.strategy.tell(Result(result.number, result.rung, result.steps, point, values, result.error_kind))
        told = max(told, trial.known_results)
        before.number = trial.number
        difference = _difference(source, trial, before)
        if difference is not None:
            yield difference


def _difference(source: Source, trial: Trial, known: Collection[str]) -> Difference | None:
    recorded = trial.number, trial.known_results, trial.operator, trial.architecture_hash
    try:
        proposal = source.propose(trial.number, known)
    except Exhausted:
        return Difference(*recorded, None, None)
    hash = proposal.point.architecture.hash
    return None if hash == trial.architecture_hash else Difference(*recorded, hash, proposal.operator)
