"""A model of the results proposes the point that is expected to improve the front most.

A Gaussian process learns each objective from the holes of the space (`nas.strategies._surrogate`): what holds for all
layers, what single layers add, and how training for longer changes it. Candidates are mutations and crossovers of the
best points, moves that change all layers alike, and random points. They are improved over some rounds by their expected
hypervolume improvement times their probability of success. Objectives that need no training are computed for the best
candidates. A trial that runs counts as if its result were the predicted one. The first points are random; in every
second one, all layers are alike.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from nas.options import Field, Names, Positive, Trials
from nas.strategies._surrogate import improvement
from nas.strategies._surrogate.codes import UNSET, Codes
from nas.strategies._surrogate.costs import Costs
from nas.strategies._surrogate.earlier import Lesson
from nas.strategies._surrogate.knowledge import Knowledge, View
from nas.strategies._surrogate.moves import Moves
from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, Result, SearchSpace, Started
from nas.strategies.earlier import Earlier
from nas.strategies.population import AUTO
from nas.strategies.registry import strategy
from searchspace.errors import SpaceError
from searchspace.language.holes import admits, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from searchspace.space.point import Point
    from searchspace.tree import Hole, Scalar

FIRST = 10  # random trials before the first proposal of the model, if the budget is large or unknown
FEWEST = 4
LEAST = 2  # results that a model is fitted to
LISTED_FIRST = 3  # in a space that is listed
FAILING = 3  # times that many failures, with two results, are enough to learn where trials fail
TAUGHT_FIRST = 6  # if what an earlier study predicts of them is confirmed
LISTED = 400  # a space of at most this many points is listed, and all of them are candidates
TIE = 0.02  # how much the expected improvement counts there, in addition to the chance of being on the front
TAUGHT = 20  # best points of an earlier study that are candidates
MODELLED = 2  # times that the model is asked for one proposal, where its candidates are known or not feasible
EVOLVED = 8  # draws for one proposal, from which on they are random
MUTATED = 4  # mutations at most where the model finds no candidate, until one is new
BUILT = 16  # candidates that are built at most, until some are feasible and new


@strategy("model")
class Model(StrategyBase):
    """start: random trials before the model is used. candidates: rows that each round compares. rounds: how often the
    best of them are varied. exact: candidates whose costs are computed. costs: whether computed costs are features too,
    in a space that is listed. learn_from: names of earlier studies, whose results are `earlier`. The random start
    counts the strategy's own trials, and ends early if most of them fail."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        trials: int | None = None,
        earlier: Sequence[Earlier] = (),
        start: Literal["auto"] | Annotated[Trials, Field(ge=2)] = AUTO,
        candidates: Annotated[Positive, Field(ge=8, le=10_000)] = 48,
        rounds: Annotated[Positive, Field(le=1_000)] = 3,
        exact: Annotated[Positive, Field(le=1_000)] = 3,
        costs: Literal["features", "values"] = "features",
        learn_from: Names = (),
    ) -> None:
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.first = first_trials(start, trials, points_of(space))
        self.resolved = {"start": self.first}
        self.candidates, self.rounds, self.exact = candidates, rounds, exact
        self.codes = Codes(space)
        self.moves = Moves(self.codes)
        self._earlier, self._costs_are_features = tuple(earlier), costs == "features"
        self._own: set[int] = set()  # numbers of the trials of this strategy
        self._pending: dict[int, np.ndarray] = {}  # number of the trial -> row
        self._batch: dict[int, np.ndarray] = {}  # the same, of earlier proposals of the batch that is asked for
        self._batch_hashes: set[str] = set()
        self._infeasible: set[int] = set()  # hashes of rows, which save time alone

    @cached_property
    def knowledge(self) -> Knowledge:
        """What the strategy knows. It is made when it is needed first: the processes of earlier studies are fitted."""
        costs = None
        if self._costs_are_features and self.evaluate and self._listed:
            rows = np.array([row for _, row, _ in self._listed])
            costs = Costs(self.codes, rows, [each for _, _, each in self._listed])
        found = Knowledge(self.codes, self.objectives, costs if costs and costs.count else None)
        found.lessons = [Lesson(self.codes, found.features, self.objectives, each) for each in self._earlier]
        return found

    def ask(self, number: int, count: int = 1, attempt: int = 0) -> list[Proposal]:
        """See `Strategy.ask`. Raises ValueError if count is below 1, NothingLeft if there is not one proposal."""
        try:
            return super().ask(number, count, attempt)
        finally:
            self._batch, self._batch_hashes = {}, set()

    def suppose(self, started: Started) -> None:
        if started.point is not None:
            self._batch[started.number] = self.codes.row(started.point.choices)
            self._batch_hashes.add(started.point.architecture.hash)

    def start(self, started: Started) -> None:
        super().start(started)
        self._own.add(started.number)
        if started.point is not None:
            self._pending[started.number] = self.codes.row(started.point.choices)

    def learn(self, result: Result, failed: bool) -> None:
        self._own.add(result.number)
        row = self._pending.pop(result.number, None)
        if result.point is not None:
            row = self.codes.row(result.point.choices) if row is None else row
            self.knowledge.add(result.number, row, result.steps, None if failed else result.values)

    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        drawn = np.random.default_rng(rng.getrandbits(64))
        if tried >= EVOLVED or self._opens():
            return self._first_point(rng, drawn, len(self._own) + len(self._batch), tried)
        try:
            found = self._modelled(rng, drawn) if tried < MODELLED else None
        except (np.linalg.LinAlgError, FloatingPointError):  # the search goes on, as evolution
            found = None
        if found is None:
            return self._evolved(rng)
        return Proposal(found, "model")

    def _opens(self) -> bool:
        """Whether too little is known for the model."""
        known = self.knowledge
        if known.successes >= self.first:
            return False
        if known.successes >= LEAST and known.failures >= FAILING * self.first:
            return False
        return known.successes < TAUGHT_FIRST or not known.confirmed(TAUGHT_FIRST)

    def _first_point(self, rng: Random, drawn: np.random.Generator, turn: int, tried: int) -> Proposal:
        if turn % 2 == 0 and tried < 10:
            taught = self._taught(rng, turn // 4) if turn % 4 == 0 and turn < TAUGHT_FIRST else None
            if taught is not None:
                return Proposal(taught, "earlier")
            return Proposal(self._random(rng, drawn, alike=True), "random")
        return Proposal(self._random(rng, drawn, alike=False), "random")

    def _taught(self, rng: Random, turn: int) -> Point | None:
        """The best new point of an earlier study; the studies take turns. None if there is none."""
        lessons = [each for each in self.knowledge.lessons if len(each.best)]
        if not lessons:
            return None
        for row in lessons[turn % len(lessons)].best[:TAUGHT]:
            point = self._built(row, rng)
            if point is not None and self._is_new(point):
                return point
        return None

    def _modelled(self, rng: Random, drawn: np.random.Generator) -> Point | None:
        """The feasible new candidate with the greatest expected improvement; None if there is none."""
        pending = [self.codes.filled(row, drawn) for row in (self._pending | self._batch).values()]
        view = self.knowledge.view(pending, drawn)
        if self._listed:
            return self._best_listed(view, drawn)
        rows, gains = self._searched(view, drawn)
        built: list[tuple[Point, np.ndarray]] = []
        for place in np.argsort(-gains, kind="stable")[:BUILT]:
            if gains[place] < 0:  # this one and those after it are known
                break
            point = self._built(rows[place], rng)
            if point is not None and self._is_new(point):
                built.append((point, rows[place]))
                if len(built) == (self.exact if self.evaluate else 1):
                    break
        if not built:
            return None
        if self.evaluate is None or len(built) == 1:
            return built[0][0]
        costs = [self.evaluate(point) for point, _ in built]
        exact = self._gains(view, np.array([row for _, row in built]), drawn, costs)
        return built[int(np.argmax(exact))][0]

    def _best_listed(self, view: View, drawn: np.random.Generator) -> Point | None:
        """Among all points of a small space, the one that is most likely on the front of all of them."""
        left = [each for each in self._listed if self._is_new(each[0])]
        if not left:
            return None
        costs = [cost for _, _, cost in left] if self.evaluate else None
        rows = np.array([row for _, row, _ in left])
        gains = self._gains(view, rows, drawn, costs)
        mean, deviation, success = self._predicted(view, rows, costs)
        chance = improvement.chance_of_front(mean, deviation, view.known, drawn) * success
        return left[int(np.argmax(chance + TIE * gains / max(gains.max(), improvement.SMALL)))][0]

    @cached_property
    def _listed(self) -> list[tuple[Point, np.ndarray, tuple[float | None, ...]]]:
        """(point, row, costs) of every feasible point of a small space; empty for a larger one."""
        points = points_of(self.space)
        if points is None or points > LISTED:
            return []
        rng = np.random.default_rng(0)
        found = [point for point in self.space.enumerate() if self.space.feasible(point)]  # type: ignore[attr-defined]
        rows = [self.codes.filled(self.codes.row(point.choices), rng) for point in found]
        return [(point, row, self.evaluate(point) if self.evaluate else ()) for point, row in zip(found, rows)]

    def _searched(self, view: View, drawn: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(candidates [N, D], their gains [N]) of all rounds."""
        taught = [each.best[:TAUGHT] for each in self.knowledge.lessons]
        parents = np.vstack([view.parents, *taught])
        few = self.candidates // 6
        rows = np.vstack(
            [
                self.codes.random(few, drawn),
                self.codes.random(few, drawn, alike=True),
                self.moves.children(parents, self.candidates - 2 * few, drawn),
                *taught,
            ]
        )
        gains = self._gains(view, rows, drawn)
        for _ in range(self.rounds - 1):
            best = np.argsort(-gains, kind="stable")[: max(4, self.candidates // 6)]
            more = self.moves.children(rows[best], self.candidates, drawn)
            rows, gains = np.vstack([rows, more]), np.concatenate([gains, self._gains(view, more, drawn)])
        return rows, gains

    def _gains(
        self,
        view: View,
        rows: np.ndarray,
        drawn: np.random.Generator,
        costs: list[tuple[float | None, ...]] | None = None,
    ) -> np.ndarray:
        """The expected improvement of each row times its probability of success, [N]; 0 for a known row."""
        mean, deviation, success = self._predicted(view, rows, costs)
        found = improvement.expected(mean, deviation, view.known, view.corner, drawn) * success
        found[self.knowledge.has(self._plain(rows))] = -1.0
        return found

    @staticmethod
    def _predicted(
        view: View, rows: np.ndarray, costs: list[tuple[float | None, ...]] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean [N, M], deviation [N, M], probability of success [N]), with computed costs where there are any."""
        mean, deviation, success = view.predict(rows)
        for place, values in enumerate(costs or ()):
            for column, value in enumerate(values):
                if value is not None:
                    mean[place, column], deviation[place, column] = view.scaled(column, value), 0.0
        return mean, deviation, success

    def _plain(self, rows: np.ndarray) -> np.ndarray:
        """The rows with `UNSET` for holes that are not active."""
        return np.where(self.codes.active(rows), rows, UNSET)

    def _is_new(self, point: Point) -> bool:
        hash = point.architecture.hash
        return hash not in self._started and hash not in self._told and hash not in self._batch_hashes

    def _built(self, row: np.ndarray, rng: Random) -> Point | None:
        """The point of a row; None if it is not feasible."""
        key = hash(self._plain(row[None]).tobytes())
        if key in self._infeasible:
            return None
        choices, known = self.codes.choices(row), True

        def chosen(path: str, hole: Hole) -> Scalar:
            nonlocal known
            if path in choices and admits(hole, choices[path]):
                return choices[path]
            known = False
            return draw(hole, rng)

        point: Point | None
        try:
            point = self.space.realise(chosen)
        except SpaceError:  # too many blocks with repeats expanded
            point = None
        feasible = getattr(self.space, "feasible", None)
        if point is not None and (feasible is None or feasible(point)):
            return point
        if known:  # nothing was drawn, so it will be the same again
            self._infeasible.add(key)
        return None

    def _random(self, rng: Random, drawn: np.random.Generator, *, alike: bool) -> Point:
        if alike:
            for row in self.codes.random(BUILT, drawn, alike=True):
                point = self._built(row, rng)
                if point is not None and self._is_new(point):
                    return point
        return self.space.sample(rng)

    def _evolved(self, rng: Random) -> Proposal:
        """A mutation of one of the best points, by the space itself; new if one of the first few is."""
        found = self._mutated(rng)
        for _ in range(MUTATED - 1):  # each takes less than the search for another candidate of the model
            if self._is_new(found.point):
                break
            found = self._mutated(rng)
        return found

    def _mutated(self, rng: Random) -> Proposal:
        number, row = self.knowledge.one_of_the_best(rng)
        filled = self.codes.filled(row, np.random.default_rng(rng.getrandbits(64)))
        point = self._built(filled, rng)
        if point is None:
            return Proposal(self.space.sample(rng), "random")
        return Proposal(self.space.mutate(point, rng), "mutation", (number,))


def points_of(space: SearchSpace) -> int | None:
    """The number of points of a space; None if it is not known or infinite."""
    size = getattr(space, "size", None)
    return size().points if size is not None else None


def first_trials(start: int | Literal["auto"], trials: int | None, points: int | None) -> int:
    """How many random trials come first. `auto` is a quarter of `trials`, from 4 to 10; 3 in a space that is listed."""
    if start != AUTO:
        return start
    if points is not None and points <= LISTED:
        return LISTED_FIRST
    return FIRST if trials is None else min(FIRST, max(FEWEST, trials // 4))
