"""The next trial of a study: tells the strategy what the store holds, and stores what the strategy asks for.

Two processes may do this for one study at once. A trial's number and its architecture are unique in the store; whoever
comes second hears so, reads what is new, and asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from nas.errors import NasError
from nas.objectives.contract import Objective
from nas.schedulers.contract import Scheduler
from nas.store import Refusal, Store, Study, TrialAdded, TrialRefused, Unit, UnitResult
from nas.strategies.contract import Proposal, Result, Strategy
from searchspace.architecture import Architecture
from searchspace.errors import SpaceError
from searchspace.space import Point, Space

ATTEMPTS = 500  # proposals in a row that are known already before a space counts as searched through


class Exhausted(NasError):
    """Everything the strategy proposes has been tried."""


class Proposer:
    """Proposes trials and promotions for one study, in step with the store."""

    def __init__(
        self,
        store: Store,
        study: Study,
        space: Space,
        strategy: Strategy,
        scheduler: Scheduler,
        objectives: Sequence[Objective],
        baselines: Sequence[Architecture] = (),
    ):
        self.store, self.study, self.space = store, study, space
        self.strategy, self.scheduler, self.objectives = strategy, scheduler, objectives
        self.baselines = baselines
        self.told = 0  # results the strategy knows
        self._cursor = 0
        self._known: set[str] = store.architecture_hashes(study.id, "search")
        self._points: dict[int, Point] = {}
        self._trials: dict[int, int] = {}  # number -> id of the trials that may be promoted

    def absorb(self) -> None:
        """Tell the strategy and the scheduler what was recorded since the last time."""
        for result in self.store.results_since(self.study.id, self._cursor):
            self._cursor = result.sequence
            if result.purpose == "search":
                self.tell(result)

    def tell(self, result: UnitResult) -> None:
        """Tell one recorded result."""
        values = self._minimised(result)
        self._trials[result.number] = result.trial_id
        self._known.add(result.architecture_hash)
        self.strategy.tell(Result(result.number, result.rung, self._point(result), values))
        self.scheduler.started(result.number, result.rung)
        self.scheduler.tell(result.number, result.rung, values)
        self.told += 1

    def promotion(self, owner: str, seconds: float) -> Unit | None:
        """A leased unit for a trial that goes on, if one should."""
        while True:
            self.absorb()
            promotion = self.scheduler.promotion()
            if promotion is None:
                return None
            number, rung = promotion
            self.scheduler.started(number, rung)
            unit = self.store.promote(
                self._trials[number], rung, self.scheduler.rungs[rung], owner=owner, lease_seconds=seconds
            )
            if unit is not None:  # else another process promoted it first
                return unit

    def new_trial(self, owner: str, seconds: float, limit: int) -> Unit | None:
        """A leased unit for a trial nobody has tried; None once the study holds `limit` of them."""
        attempt = 0
        while True:
            self.absorb()
            number = self.store.next_number(self.study.id)
            try:
                proposal, attempt = self._propose(number, attempt)
            except Exhausted:
                return None
            added = self._add(number, proposal, owner, seconds, limit)
            if isinstance(added, TrialAdded):
                self._known.add(proposal.point.architecture.hash)
                self._points[number] = proposal.point
                return added.unit
            if added.reason is Refusal.LIMIT_REACHED:
                return None
            if added.reason is Refusal.ARCHITECTURE_KNOWN:
                self._known.add(proposal.point.architecture.hash)
            else:  # the number was taken: what is proposed for the next one is another proposal
                attempt = 0

    def architecture(self, unit: Unit) -> Architecture:
        """The unit's architecture, read again only if it was not proposed here."""
        point = self._points.get(unit.number)
        return point.architecture if point else Architecture.parse(unit.architecture)

    def _propose(self, number: int, attempt: int) -> tuple[Proposal, int]:
        """The first proposal for `number` from `attempt` on that nobody tried, and the attempt that gave it."""
        if number < len(self.baselines):
            point = Point({}, self.baselines[number])
            if point.architecture.hash not in self._known:
                return Proposal(point, "baseline"), attempt
        for later in range(attempt, attempt + ATTEMPTS):
            proposal = self.strategy.ask(number, later)
            if proposal.point.architecture.hash not in self._known:
                return proposal, later
        raise Exhausted(f"{ATTEMPTS} proposals in a row were known already.")

    def _add(
        self, number: int, proposal: Proposal, owner: str, seconds: float, limit: int
    ) -> TrialAdded | TrialRefused:
        architecture = proposal.point.architecture
        cheap = {o.name: o.evaluate(architecture) for o in self.objectives if not o.trained}
        return self.store.add_trial(
            self.study.id,
            number,
            (architecture.hash, architecture.text()),
            seed=self.study.seed,
            purpose="search",
            operator=proposal.operator,
            parents=proposal.parents,
            choices=proposal.point.choices,
            known_results=self.told,
            steps=self.scheduler.rungs[0],
            cheap_values=cheap,
            owner=owner,
            lease_seconds=seconds,
            limit=limit,
        )

    def _minimised(self, result: UnitResult) -> tuple[float, ...] | None:
        """The objectives in their order, each with the sign that makes less better; None when the unit failed."""
        values = result.values
        return None if values is None else tuple(o.minimised(values[o.name]) for o in self.objectives)

    def _point(self, result: UnitResult) -> Point | None:
        """The trial's point in today's space, or None where it is not part of it."""
        known = self._points.pop(result.number, None)
        if known is not None:
            return known
        try:
            if result.choices:
                return self.space.point(result.choices)
        except SpaceError:
            pass  # chosen in an earlier version of the space
        return self.space.locate(Architecture.parse(result.architecture))
