"""The next units of a study: tells each arm what the store has recorded, and stores what the arms propose.

Before trial n is proposed, its arm knows every trial numbered below n, of any process, and at least as many results as
were known to any of them. So proposals follow from the log: `known_trials` and `known_results` of a trial say what its
strategy knew, and `nas replay` repeats it.

Two processes may do this for one study at once. A trial's number, and its architecture within an arm, are unique in the
store. The second process to use one is refused, reads what is new, and proposes again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from nas.engine.arm import Arm, next_arm
from nas.engine.scores import Scores
from nas.engine.source import Exhausted, point_of
from nas.objectives.contract import Search
from nas.store import Reader, Refusal, Store, Study, Trial, TrialAdded, TrialRefused, TrialState, Unit, UnitKind
from nas.store.records import RETRY, SEARCH
from nas.strategies.contract import Proposal
from searchspace.language.collecting import collected_later
from searchspace.model.architecture import Architecture
from searchspace.space.point import Point
from searchspace.space.space import Space

BATCH = 1000  # rows read at once
EVIDENCE = 50  # trials with their architectures, read at once
P = ParamSpec("P")
T = TypeVar("T")


def _forgets_after_an_error(
    method: Callable[Concatenate[Proposer, P], T],
) -> Callable[Concatenate[Proposer, P], T]:
    """The method; after an error the proposer knows nothing, and its next call reads the log from the beginning.

    Else an arm might have counted what was not stored, or have been told half.
    """

    @wraps(method)
    def safe(self: Proposer, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            self._forget()
            raise

    return safe


class Proposer:
    """Proposes trials and promotions for one study.

    costs: (parameters, FLOPs of one training step) of an architecture, which are stored with its trial. drawing: its
    lines, stored too.
    space_version: the number of `space` within the study. make_arms: builds the arms, `main` first, without any
    knowledge. They are built again if another process has added a trial that knew fewer results: the order of starts
    and results is then that of the log, in every process.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        space: Space,
        scores: Scores,
        make_arms: Callable[[], Sequence[Arm]],
        costs: Callable[[Architecture], tuple[int, float]],
        drawing: Callable[[Architecture], dict[str, Any] | None],
        say: Callable[[str], None] = lambda text: None,
        *,
        space_version: int,
    ):
        self.store, self.study, self.space, self.scores = store, study, space, scores
        self._say, self._told_idle = say, set[str]()  # arms whose strategy proposes nothing
        self._make_arms, self._costs, self._drawing = make_arms, costs, drawing
        for each in scores.objectives:
            each.begin(Search(space, store, say, partial(evidence, store, study)))
        self._space_version = space_version
        self._parsed = lru_cache(maxsize=64)(Architecture.parse)  # the finals train few architectures many times
        self._forget()

    def _forget(self) -> None:
        """Know nothing, so that `absorb` reads the log from its beginning."""
        self.arms = {arm.name: arm for arm in self._make_arms()}
        self.trained_seconds = 0.0  # of all units of the search that ended
        self._next = 0  # trials below this number are known
        self._cursor = 0  # results up to this place in the sequence were read
        self._unread: deque[Unit] = deque()  # read, but not passed on yet
        self._more = True  # whether there may be results after those

    @property
    def exhausted(self) -> Exhausted | None:
        """Why no arm can propose anything new, if that is so."""
        reasons = [arm.exhausted for arm in self.arms.values()]
        return reasons[0] if all(reasons) else None

    @_forgets_after_an_error
    @collected_later()
    def absorb(self) -> None:
        """Tell the arms which trials were started and which units ended since the last time, in the log's order."""
        rebuilt = False
        while True:
            trials, results = self.store.log_since(self.study.id, self._next, self._cursor, BATCH)
            self._receive(results)
            for trial in trials:
                if not rebuilt and self._told_too_much(trial):
                    self._forget()
                    rebuilt = True
                    break
                self._start(trial)
            else:
                if len(trials) < BATCH and self._tell_all():
                    return

    def _tell_all(self) -> bool:
        """Tell all results; False if there is one of a trial that another process added a moment ago."""
        while (result := self._result()) is not None:
            if result.purpose == SEARCH and result.number >= self._next:
                self._unread.appendleft(result)
                return False
            self._tell(result)
        return True

    @_forgets_after_an_error
    def promotion(self, owner: str, seconds: float) -> Unit | None:
        """A leased unit for a trial that continues, if one should."""
        for arm in self.arms.values():
            while (found := arm.promotion()) is not None:
                trial, promotion = found
                unit = self.store.promote(trial, promotion.rung, promotion.steps, owner=owner, lease_seconds=seconds)
                if unit is not None:  # else another process promoted it, or an earlier search stopped it
                    arm.continues(unit.number)
                    return unit
        return None

    @_forgets_after_an_error
    def new_trials(self, owners: Sequence[str], seconds: float, budget: int | None) -> list[Unit]:
        """Units of new trials, leased to `owners`, one each.

        budget: the number of trials that the study may hold; None if there is no such limit. Fewer units are returned
        if the budget of trials, the budget of the arms or the space is exhausted.
        """
        units: list[Unit] = []
        while len(units) < len(owners):
            found = next_arm(list(self.arms.values()), budget, len(owners) - len(units))
            if found is None:
                break
            arm, count = found
            try:
                proposals = arm.propose(self._next, count)
            except Exhausted as error:
                arm.exhausted = error
                continue
            if arm.source.idle and arm.name not in self._told_idle:
                self._told_idle.add(arm.name)
                self._say(f"{arm.source.idle} The remaining points of the space are tried in its place.")
            units += self._add(arm, proposals, owners[len(units) :], seconds, budget)
            if len(units) < len(owners):
                self.absorb()
        return units

    def retry(self, kind: str) -> int:
        """Queue a new trial for each failed one of this kind that has none yet -> how many were queued.

        The failed trial stays in the log, where the strategy has learned from it. The new one comes later in the log,
        as any other trial, so replays stay valid. It trains from the beginning.
        """
        self.absorb()
        failed = self.store.trials(self.study.id, states=(TrialState.FAILED,), purposes=("search",))
        return sum(self._retried(each) for each in failed if each.error_kind == kind and each.arm in self.arms)

    def _retried(self, failed: Trial) -> bool:
        arm = self.arms[failed.arm]
        architecture = Architecture.parse(failed.architecture)
        point = point_of(self.space, failed.choices, lambda: failed.architecture, failed.architecture_hash)
        proposal = Proposal(point or Point({}, architecture), RETRY, (failed.number,))
        while True:
            known = self._next, arm.told
            added = self._stored(arm, proposal, None, 0.0, None, *known, variant=f"{RETRY} of trial {failed.number}")
            self.absorb()
            arm = self.arms[failed.arm]
            if isinstance(added, TrialAdded):
                return True
            if added.reason is not Refusal.NUMBER_TAKEN:
                return False  # it was tried again before

    def is_last(self, unit: Unit) -> bool:
        """Whether the unit's trial ends with it."""
        if unit.kind is UnitKind.PROBE:
            return False
        return unit.purpose != "search" or self._arm(unit).is_last(unit)

    def horizon(self, unit: Unit) -> int:
        """The steps at which the learning rate of the unit's trial has come down."""
        return self._arm(unit).horizon(unit.number) if unit.purpose == "search" else unit.steps

    def first_steps(self, unit: Unit) -> int:
        """The steps of the training unit that follows a probe."""
        return self._arm(unit).first_steps(unit.number)

    def architecture(self, unit: Unit) -> Architecture:
        """The unit's architecture, parsed only if it was not proposed here."""
        known = self.arms[unit.arm].architecture(unit.number) if unit.arm in self.arms else None
        return known or self._parsed(unit.architecture)

    def _arm(self, unit: Unit) -> Arm:
        """The unit's arm, after it has read the unit's trial. The trial of a unit that was taken over may not be read
        yet.
        """
        if unit.number >= self._next:
            self.absorb()
        return self.arms[unit.arm]

    def _told_too_much(self, trial: Trial) -> bool:
        """Whether the trial's arm knows more results than were known when another process proposed the trial."""
        arm = self.arms.get(trial.arm)
        return trial.purpose == "search" and arm is not None and arm.told > trial.known_results

    def _start(self, trial: Trial) -> None:
        if trial.purpose == SEARCH:
            arm = self.arms[trial.arm]
            while arm.told < trial.known_results and (result := self._result()) is not None:
                self._tell(result)
            arm.start(trial)
        self._next = trial.number + 1

    def _result(self) -> Unit | None:
        """The next result of the study's sequence."""
        if not self._unread and self._more:
            self._receive(self.store.results_since(self.study.id, self._cursor, BATCH, light=True))
        return self._unread.popleft() if self._unread else None

    def _receive(self, results: Sequence[Unit]) -> None:
        self._unread.extend(results)
        self._more = len(results) == BATCH
        if results:
            self._cursor = results[-1].sequence or self._cursor

    def _tell(self, result: Unit) -> None:
        if result.purpose == "search":
            self.trained_seconds += result.seconds or 0.0
            if result.arm in self.arms:
                self.arms[result.arm].tell(result)

    def _add(
        self, arm: Arm, proposals: Sequence[Proposal], owners: Sequence[str], seconds: float, budget: int | None
    ) -> list[Unit]:
        """Store the proposals of one batch, until one is refused or the scheduler waits."""
        units: list[Unit] = []
        known_trials, known_results = self._next, arm.told
        for proposal in proposals:
            if arm.trials and arm.waiting:
                break
            added = self._stored(arm, proposal, owners[len(units)], seconds, budget, known_trials, known_results)
            if isinstance(added, TrialRefused):
                if added.reason is Refusal.ARCHITECTURE_KNOWN:
                    arm.known.add(proposal.point.architecture.hash)
                break
            self._begin(arm, added.number, proposal)
            if added.unit is not None:  # else it has no value for an objective, and was recorded as failed
                units.append(added.unit)
        return units

    def _begin(self, arm: Arm, number: int, proposal: Proposal) -> None:
        point, architecture = proposal.point, proposal.point.architecture
        located = point if point.choices else point_of(self.space, {}, architecture.text, architecture.hash)
        arm.begin(number, architecture.hash, located)
        self._next = number + 1

    def _stored(
        self,
        arm: Arm,
        proposal: Proposal,
        owner: str | None,
        seconds: float,
        budget: int | None,
        known_trials: int,
        known_results: int,
        variant: str = "",
    ) -> TrialAdded | TrialRefused:
        architecture = proposal.point.architecture
        cheap, evidence, failure = self.scores.before(architecture)
        probed = bool(self.scores.probes)
        left = None if budget is None else budget - sum(each.trials for each in self.arms.values())
        return self.store.add_trial(
            self.study.id,
            self._next,
            (architecture.hash, architecture.text()),
            seed=self.study.seed,
            purpose="search",
            arm=arm.name,
            operator=proposal.operator,
            parents=proposal.parents,
            choices=proposal.point.choices,
            known_results=known_results,
            known_trials=known_trials,
            kind=UnitKind.PROBE if probed else UnitKind.TRAIN,
            steps=0 if probed else arm.next_steps(),
            cheap_values=cheap,
            evidence=evidence,
            failure=failure,
            owner=owner,
            lease_seconds=seconds,
            limit=None if left is None else arm.trials + left,
            costs=self._costs(architecture),
            drawing=self._drawing(architecture),
            space_version=self._space_version,
            variant=variant,
        )


def evidence(store: Reader, study: Study, name: str) -> Iterator[Mapping[str, Any]]:
    """How the values of the objective `name` were found, the oldest trial first, without trials that have none."""
    first = 0
    while trials := store.trials(study.id, purposes=("search",), first=first, limit=EVIDENCE):
        yield from (trial.evidence[name] for trial in trials if trial.evidence and name in trial.evidence)
        first = trials[-1].number + 1
