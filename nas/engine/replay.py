"""Replays a search from its log: does each strategy, knowing what it knew then, propose every trial again?

A proposal follows from the space, the seed, the number of the trial, and the started trials and results that were
known. The store keeps all of that, for every process that took part and in the order in which units ended. So a search
on a cluster can be followed, and debugged, in one process without training anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import session
from nas.engine.arm import Arm, counts
from nas.engine.scores import Scores
from nas.engine.source import Exhausted
from nas.store import Reader, Study, Trial, Unit
from nas.store.records import RETRY
from searchspace.wording import plural

GIVEN = ("baseline", RETRY)  # operators of trials that no strategy proposed


@dataclass(frozen=True)
class Difference:
    """A trial that is proposed differently now; the hashes of both architectures; `proposed` is None for nothing."""

    trial: int
    known_results: int
    operator: str
    recorded: str
    proposed: str | None
    proposed_by: str | None

    def __str__(self) -> str:
        now = f"{self.proposed[:12]} ({self.proposed_by})" if self.proposed else "nothing"
        return (
            f"trial {self.trial}, proposed after {plural(self.known_results, 'result')}, is {self.recorded[:12]} "
            f"({self.operator}), but now {now} is proposed"
        )


@dataclass(frozen=True)
class Replay:
    """The result of a replay. `given`: baselines and retries; they are counted, not proposed."""

    trials: int
    given: int
    results: int
    differences: tuple[Difference, ...]  # by the number of the trial

    @property
    def same(self) -> bool:
        """Whether every trial is proposed again as it is recorded."""
        return not self.differences

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"same": self.same, **asdict(self)}

    def as_text(self) -> str:
        """One or two sentences."""
        counted = (
            f"{plural(self.trials, 'trial')} from {plural(self.results, 'result')} ({self.given} given, not proposed)"
        )
        if self.same:
            return f"The same: {counted} are proposed again as they are recorded."
        return f"Not the same: of {counted}, {len(self.differences)} differ. The first: {self.differences[0]}."


def replay(store: Reader, study: Study) -> Replay:
    """Propose every trial of `study` again, each with what its strategy knew then."""
    trials = store.trials(study.id, purposes=("search",))
    results = [each for each in store.results_since(study.id) if each.purpose == "search" and counts(each)]
    built = parts(SearchConfig.stored(study.config))
    scores = Scores(built.objectives)
    found: list[Difference] = []
    for version in store.space_versions(study.id):
        for arm in session.arms(built, built.space_of(version.text), scores, space_version=version.number):
            own = [each for each in trials if each.arm == arm.name]
            log = _Log(arm, own, [each for each in results if each.arm == arm.name])
            found += log.differences({each.number for each in own if each.space_version == version.number})
    given = sum(trial.operator in GIVEN for trial in trials)
    return Replay(len(trials), given, len(results), tuple(sorted(found, key=lambda each: each.trial)))


class _Log:
    """The log of one arm: tells it its trials and results in order, and compares its proposals."""

    def __init__(self, arm: Arm, trials: Sequence[Trial], results: Sequence[Unit]) -> None:
        self.arm, self.trials, self.results = arm, trials, results

    def differences(self, wanted: Collection[int]) -> Iterator[Difference]:
        """The differences among the trials with these numbers."""
        if not wanted:
            return
        for batch in _batches(self.trials):
            self._tell(batch[0].known_results)
            if batch[0].number in wanted and batch[0].operator not in GIVEN:
                yield from self._compared(batch, self.arm.known)
            for trial in batch:
                self._tell(trial.known_results)
                self.arm.start(trial)

    def _tell(self, count: int) -> None:
        """Tell results until the arm knows `count`."""
        for result in self.results[self.arm.told : count]:
            self.arm.tell(result)

    def _compared(self, batch: Sequence[Trial], known: Collection[str]) -> Iterator[Difference]:
        try:
            proposals = self.arm.source.propose(batch[0].number, len(batch), known)
        except Exhausted:
            proposals = []
        for index, trial in enumerate(batch):
            recorded = trial.number, trial.known_results, trial.operator, trial.architecture_hash
            if index >= len(proposals):
                yield Difference(*recorded, None, None)
            elif (hash := proposals[index].point.architecture.hash) != trial.architecture_hash:
                yield Difference(*recorded, hash, proposals[index].operator)


def _batches(trials: Sequence[Trial]) -> Iterator[list[Trial]]:
    """The trials that were proposed together: those that knew the same trials."""
    batch: list[Trial] = []
    for trial in trials:
        if batch and trial.known_trials != batch[0].known_trials:
            yield batch
            batch = []
        batch.append(trial)
    if batch:
        yield batch
