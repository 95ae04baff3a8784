"""What all strategies share: known failures, pending points, several proposals at once.

A strategy derives from `StrategyBase` and writes `propose`, and `learn` if it learns from results.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from nas.strategies.contract import Evaluate, NothingLeft, Proposal, Result, SearchSpace, Started, generator

DRAWS = 200  # if this many draws in a row are known failures, the space has nothing else
ATTEMPTS = 500  # if this many proposals in a row are known or pending, the space has nothing else


class StrategyBase(ABC):
    """space: where points come from. objectives: how many there are. evaluate: those that need no training."""

    def __init__(self, space: SearchSpace, *, seed: int, objectives: int = 1, evaluate: Evaluate | None = None) -> None:
        self.space = space
        self.seed = seed
        self.objectives = objectives
        self.evaluate = evaluate
        self.resolved: Mapping[str, Any] = {}  # see `Strategy`
        self._failed: dict[str, str] = {}  # hash of the architecture -> kind of failure
        self._started: set[str] = set()
        self._told: set[str] = set()

    @abstractmethod
    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        """A proposal for trial `number`. `tried` counts the draws for this trial that were of no use."""

    def learn(self, result: Result, failed: bool) -> None:  # noqa: B027 (random search learns nothing)
        """Learn from a result; `failed` if it has no values or one that is not finite."""

    def suppose(self, started: Started) -> None:  # noqa: B027 (most need no more than the pending hashes)
        """An earlier proposal of the same batch counts as pending. What is done here must be undone after `ask`."""

    def ask(self, number: int, count: int = 1, attempt: int = 0) -> list[Proposal]:
        """See `Strategy.ask`. Raises ValueError if count is below 1, NothingLeft if there is not one proposal."""
        if count < 1:
            raise ValueError(f"count must be at least 1, but got {count}.")
        avoids = bool(self._started) or count > 1
        batch: set[str] = set()
        proposals: list[Proposal] = []
        for each in range(number, number + count):
            try:
                proposal = self._new(each, attempt, batch) if avoids else self._drawn(each, attempt)
            except NothingLeft:
                if proposals:
                    break
                raise
            proposals.append(proposal)
            batch.add(proposal.point.architecture.hash)
            if len(proposals) < count:
                self.suppose(Started(each, proposal.point))
        return proposals

    def start(self, started: Started) -> None:
        if started.point is not None:
            self._started.add(started.point.architecture.hash)

    def tell(self, result: Result) -> None:
        failed = result.values is None or not all(map(math.isfinite, result.values))
        if result.point is not None:
            self._told.add(result.point.architecture.hash)
            if failed:
                self._failed[result.point.architecture.hash] = result.failure or "no finite value"
        self.learn(result, failed)

    def _new(self, number: int, attempt: int, batch: set[str]) -> Proposal:
        """The first proposal, from `attempt` on, that is neither known nor pending nor in `batch`."""
        for each in range(attempt, attempt + ATTEMPTS):
            proposal = self._drawn(number, each)
            hash = proposal.point.architecture.hash
            if hash not in self._started and hash not in self._told and hash not in batch:
                return proposal
        raise NothingLeft(
            f"{ATTEMPTS} proposals in a row were architectures that were tried before "
            f"({len(self._started | self._told | batch)} were): widen the space.{self._and_failures()}"
        )

    def _drawn(self, number: int, attempt: int) -> Proposal:
        """The proposal of one attempt: the first draw that is not known to fail."""
        rng = generator(self.seed, number, attempt)
        for tried in range(attempt, attempt + DRAWS):
            proposal = self.propose(rng, number, tried)
            if proposal.point.architecture.hash not in self._failed:
                return proposal
        raise NothingLeft(
            f"{DRAWS} proposals in a row were architectures that are known to fail ({len(self._failed)} are): "
            f"{self.failure_summary()}. Look at their errors, or widen the space."
        )

    def _and_failures(self) -> str:
        return f" Of those with a result {len(self._failed)} failed: {self.failure_summary()}." if self._failed else ""

    def failure_summary(self) -> str:
        """How often architectures failed, and how, such as `3 out of memory, 1 not finite`; empty if none did."""
        return ", ".join(f"{count} {kind}" for kind, count in Counter(self._failed.values()).most_common())
