"""The next trial of a study: tells the strategy what the store holds, and stores what the strategy asks for.

Two processes may do this for one study at once. A trial's number and its architecture are unique in the store; whoever
comes second hears so, reads what is new, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from nas.errors import NasError
from nas.objectives.contract import NoValue, Objective, Search
from nas.schedulers.contract import Scheduler
from nas.store import Refusal, Store, Study, TrialAdded, TrialRefused, Unit
from nas.strategies.contract import NothingLeft, Proposal, Result, Strategy
from nas.work import FailureKind
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.space.point import Point
from searchspace.space.space import Space

ATTEMPTS = 500  # proposals in a row that are known already before a space counts as searched through
LISTED = 2000  # points: in a space of no more, what is left is looked for one by one
LISTED_ATTEMPTS = 50  # before that
BATCH = 1000  # results read at once


class Exhausted(NasError):
    """Everything that can be proposed has been tried."""


class Source:
    """Where proposals come from, given what was tried: the baselines, the strategy, the rest of a small space."""

    def __init__(self, space: Space, strategy: Strategy, baselines: Sequence[Architecture] = ()):
        self.space, self.strategy, self.baselines = space, strategy, baselines

    def propose(self, number: int, known: Collection[str]) -> Proposal:
        """The proposal for trial `number`; `known` are the hashes that were tried. Raises Exhausted."""
        for baseline in self.baselines:
            if baseline.hash not in known:
                return Proposal(Point({}, baseline), "baseline")
        try:
            for attempt in range(LISTED_ATTEMPTS if self._is_small else ATTEMPTS):
                proposal = self.strategy.ask(number, 1, attempt)[0]
                if proposal.point.architecture.hash not in known:
                    return proposal
        except NothingLeft:
            pass  # as far as the strategy can see
        for point in self._points:
            if point.architecture.hash not in known:
                return Proposal(point, "the last ones")
        raise Exhausted(
            "The space is searched through: every architecture in it has been tried."
            if self._is_small
            else f"The space is searched through: {ATTEMPTS} proposals in a row had been tried already."
        )

    @cached_property
    def _is_small(self) -> bool:
        points = self.space.size().points
        return points is not None and points <= LISTED

    @cached_property
    def _points(self) -> list[Point]:
        return [point for point in self.space.enumerate() if self.space.feasible(point)] if self._is_small else []


class Proposer:
    """Proposes trials and promotions for one study, in step with the store.

    `absorb` reads what is new there; `promotion` and `new_trial` then say what should run next.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        space: Space,
        strategy: Strategy,
        scheduler: Scheduler,
        objectives: Sequence[Objective],
        baselines: Sequence[Architecture] = (),
        say: Callable[[str], None] = lambda text: None,
    ):
        self.store, self.study, self.space = store, study, space
        self.strategy, self.scheduler, self.objectives = strategy, scheduler, objectives
        self.told = 0  # results the strategy knows
        self.trained_seconds = 0.0  # the time that went into them
        self.say = say
        for each in objectives:
            each.begin(Search(space, store, say, self._evidence))
        self.exhausted: Exhausted | None = None  # why nothing new was left to propose, when that was so
        self._source = Source(space, strategy, baselines)
        self._cursor = 0
        self._next = store.next_number(study.id)
        self._space_version = store.space_versions(study.id)[-1].number
        self._known: set[str] = store.architecture_hashes(study.id, "search")
        self._points: dict[int, Point] = {}  # of the trials proposed here whose first result has not come
        self._trials: dict[int, int] = {}  # number -> id of the trials that may be promoted
        self._full = 0  # so many trials there are at least

    def absorb(self) -> None:
        """Tell the strategy and the scheduler what was recorded since the last time."""
        while True:
            results = self.store.results_since(self.study.id, self._cursor, BATCH)
            for result in results:
                self._cursor = result.sequence or self._cursor
                if result.purpose == "search":
                    self._tell(result)
            if len(results) < BATCH:
                return

    def promotion(self, owner: str, seconds: float) -> Unit | None:
        """A leased unit for a trial that goes on, if one should."""
        while (promotion := self.scheduler.promotion()) is not None:
            number, rung, steps = promotion.number, promotion.rung, promotion.steps
            self.scheduler.started(number, rung, steps)
            unit = self.store.promote(self._trials[number], rung, steps, owner=owner, lease_seconds=seconds)
            if unit is not None:  # else another process promoted it, or an earlier search stopped it
                return unit
        return None

    def new_trial(self, owner: str, seconds: float, limit: int) -> Unit | None:
        """A leased unit for a trial nobody has tried; None once the study holds `limit` of them, or all there are."""
        while limit > self._full and self.exhausted is None:
            try:
                proposal = self._source.propose(self._next, self._known)
            except Exhausted as error:
                self.exhausted = error
                return None
            added = self._add(proposal, owner, seconds, limit)
            if isinstance(added, TrialAdded) and added.unit is None:  # it has no value for an objective
                self._next = added.number + 1
                self.absorb()
                continue
            if isinstance(added, TrialAdded):
                self._known.add(proposal.point.architecture.hash)
                if proposal.point.choices:  # a baseline's place in the space is looked for when its result comes
                    self._points[added.number] = proposal.point
                self._next = added.number + 1
                return added.unit
            self._learn(added, proposal, limit)
        return None

    def architecture(self, unit: Unit) -> Architecture:
        """The unit's architecture, read again only if it was not proposed here."""
        point = self._points.get(unit.number)
        return point.architecture if point else Architecture.parse(unit.architecture)

    def _tell(self, result: Unit) -> None:
        values = minimised(self.objectives, result)
        self._trials[result.number] = result.trial_id
        self._known.add(result.architecture_hash)
        self.strategy.tell(
            Result(result.number, result.rung, result.steps, self._point(result), values, result.error_kind)
        )
        self.scheduler.started(result.number, result.rung, result.steps)
        self.scheduler.tell(result.number, result.rung, values, result.steps)
        self.told += 1
        self.trained_seconds += result.seconds or 0.0

    def _learn(self, refused: TrialRefused, proposal: Proposal, limit: int) -> None:
        """What another process did meanwhile."""
        match refused.reason:
            case Refusal.LIMIT_REACHED:
                self._full = limit
            case Refusal.ARCHITECTURE_KNOWN:
                self._known.add(proposal.point.architecture.hash)
            case Refusal.NUMBER_TAKEN:
                self._next = self.store.next_number(self.study.id)
        self.absorb()

    def _add(self, proposal: Proposal, owner: str, seconds: float, limit: int) -> TrialAdded | TrialRefused:
        architecture = proposal.point.architecture
        cheap, evidence, failure = self._before_training(architecture)
        return self.store.add_trial(
            self.study.id,
            self._next,
            (architecture.hash, architecture.text()),
            seed=self.study.seed,
            purpose="search",
            operator=proposal.operator,
            parents=proposal.parents,
            choices=proposal.point.choices,
            known_results=self.told,
            steps=self.scheduler.start(self._next),
            cheap_values=cheap,
            evidence=evidence,
            failure=failure,
            owner=owner,
            lease_seconds=seconds,
            limit=limit,
            space_version=self._space_version,
        )

    def _before_training(self, architecture: Architecture) -> tuple[dict, dict, tuple[str, str] | None]:
        """Objectives that need no training: their values, how those were found, or why there is none."""
        values: dict[str, float] = {}
        evidence: dict[str, Any] = {}
        try:
            for each in self.objectives:
                if not each.trained:
                    values[each.name] = each.evaluate(architecture)
                    if (found := each.evidence(architecture)) is not None:
                        evidence[each.name] = found
        except NoValue as error:
            return {}, {}, (FailureKind.NO_VALUE.value, str(error))
        return values, evidence, None

    def values(self, number: int, architecture: Architecture, metrics: Mapping[str, float]) -> dict[str, float]:
        """The objectives of trial `number` after training; those that are settled keep what it was proposed with."""
        known: Mapping[str, float] = {}
        if any(each.settled for each in self.objectives):
            known = self.store.trial(self.study.id, number).cheap_values
        return {
            each.name: known[each.name] if each.settled and each.name in known else each.evaluate(architecture, metrics)
            for each in self.objectives
        }

    def _evidence(self, name: str) -> Iterator[Mapping[str, Any]]:
        """What trials tell of an objective, the oldest first."""
        trials = self.store.trials(self.study.id, purposes=("search",), limit=10)
        return (trial.evidence[name] for trial in trials if trial.evidence and name in trial.evidence)

    def _point(self, result: Unit) -> Point | None:
        proposed = self._points.pop(result.number, None)
        return proposed or point_of(self.space, result.choices, result.architecture, result.architecture_hash)


def point_of(space: Space, choices: dict, architecture: str, hash: str) -> Point | None:
    """A recorded trial's point in `space`, which may have grown since; None where it is no part of it."""
    try:
        if choices:
            point = space.point(choices)
            if point.architecture.hash == hash:
                return point
    except SpaceError:
        pass  # chosen in an earlier version of the space
    return space.locate(Architecture.parse(architecture))


def minimised(objectives: Sequence[Objective], result: Unit) -> tuple[float, ...] | None:
    """The objectives in their order, each with the sign that makes less better; None when the unit failed."""
    values = result.values
    return None if values is None else tuple(each.minimised(values[each.name]) for each in objectives)
