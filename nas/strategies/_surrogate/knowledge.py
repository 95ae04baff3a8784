"""What the strategy `model` knows: all results as rows, the models fitted to them, and what these say of candidates.

Models are fitted again when the number of results has grown by a fixed share, and from the results up to then. So what
is predicted follows from the results and their order alone, also after a restart. Large studies fit some hundred rows:
the best, and some of all. N rows, D holes, M objectives, K known points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from nas import pareto
from nas.strategies._surrogate.codes import Codes
from nas.strategies._surrogate.costs import Costs
from nas.strategies._surrogate.earlier import Lesson
from nas.strategies._surrogate.features import Features, Rows, fidelity
from nas.strategies._surrogate.improvement import normal
from nas.strategies._surrogate.process import Kernel, Posterior, fitted
from nas.strategies._surrogate.warp import Warp, bounded, standard, subset, warp_of

MOST = 256  # rows of a model
FITTED = 128  # rows to which its parameters are fitted
REFIT = 1.25  # growth of the results between two fits of the parameters
BASE, BASE_SHARE = 12, 64  # rows of a model are chosen again after BASE new results, plus 1 / BASE_SHARE of all
FRESH = 24  # results since then that a model learns: the newest, and as many of the best
PENDING = 64  # running trials that count, the newest
CORNER = 1.05  # of the reference point, in ranges of the results
PARENTS = 40
CONFIRMED = 0.7  # correlation of the first results with the predictions of an earlier study, without its sign
LEAST = 1e-100  # a smaller range counts as none


def _span(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The range of each column, [M]; 1 if its values are equal."""
    return np.where(high - low > LEAST, high - low, 1.0)


class View:
    """What is known at one moment. known: the values of known points, scaled, [K, M]. parents: rows to vary, [P, D]."""

    corner = CORNER

    def __init__(self, owner: Knowledge, base: Base, pending: Sequence[np.ndarray], rng: np.random.Generator) -> None:
        self._base, self._owner = base, owner
        fresh = owner.fresh(base)
        self._models = base.after(fresh)
        if pending:
            rows = base.features(list(pending)[-PENDING:], None)
            self._models = [model.extended(rows, None) for model in self._models]
        self.known, self.parents = self._known(fresh)
        if pending:
            mean = self._mean(rows)
            self.known = np.vstack([self.known, mean])

    def _known(self, fresh: list[int]) -> tuple[np.ndarray, np.ndarray]:
        owner, base = self._owner, self._base
        places = [*base.best, *fresh]
        if owner.several_lengths:
            rows = base.features([owner.filled(place) for place in places], None)
            values = self._mean(rows)
            longest = max(owner.lengths)
            for index, place in enumerate(places):
                if owner.steps[place] == longest:
                    values[index] = self._scale(np.array(owner.values[place]))
        else:
            values = self._scale(owner.found(places))
        order = pareto.order(values)
        parents = np.array([owner.filled(places[index]) for index in order[:PARENTS]])
        return values[pareto.front(values)], parents

    def _scale(self, values: np.ndarray) -> np.ndarray:
        return (values - self._base.low) / self._base.span

    def scaled(self, column: int, value: float) -> float:
        return float((bounded(value) - self._base.low[column]) / self._base.span[column])

    def _mean(self, rows: Rows) -> np.ndarray:
        return self._predicted(rows)[0]

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean [N, M], deviation [N, M], probability of success [N]) of `rows` [N, D], trained longest; scaled."""
        made = self._base.features(rows, None)
        mean, deviation = self._predicted(made)
        if self._base.success is None:
            return mean, deviation, np.ones(len(rows))
        share, unsure = self._base.success.predict(made)
        return mean, deviation, np.clip(normal((share - 0.5) / np.sqrt(unsure**2 + 0.04))[0], 0.01, 1.0)

    def _predicted(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        found = [warp.back(*model.predict(rows)) for warp, model in zip(self._base.warps, self._models)]
        mean = self._scale(np.array([each[0] for each in found]).T)
        return mean, np.array([each[1] for each in found]).T / self._base.span


@dataclass(frozen=True)
class Base:
    """Models of the first `count` results. best: places of the results that matter for the front."""

    count: int
    owner: Knowledge
    longest: float
    low: np.ndarray
    span: np.ndarray
    best: list[int]
    warps: list[Warp]
    models: list[Posterior]
    success: Posterior | None
    extended: dict[tuple[int, int, int], list[Posterior]] = field(default_factory=dict)

    def after(self, fresh: list[int]) -> list[Posterior]:
        """The models with the results at the places `fresh`, kept until there are more."""
        if not fresh:
            return self.models
        key = (fresh[0], fresh[-1], len(fresh))
        if key not in self.extended:
            owner = self.owner
            rows = self.features([owner.filled(place) for place in fresh], [owner.steps[place] for place in fresh])
            values = owner.found(fresh)
            self.extended.clear()
            self.extended[key] = [
                model.extended(rows, warp.forward(column))
                for warp, model, column in zip(self.warps, self.models, values.T)
            ]
        return self.extended[key]

    def features(self, rows: Sequence[np.ndarray] | np.ndarray, steps: Sequence[float] | None) -> Rows:
        return features_of(self.owner, np.asarray(rows), steps, self.longest)


def features_of(owner: Knowledge, rows: np.ndarray, steps: Sequence[float] | None, longest: float) -> Rows:
    lengths = 1.0 if steps is None else fidelity(np.array(steps, float), longest)
    made = owner.features(rows, lengths, owner.costs(rows) if owner.costs else None)
    if not owner.lessons:
        return made
    return replace(made, earlier=np.stack([lesson.predicted(rows) for lesson in owner.lessons], axis=1))


class Knowledge:
    """The results of a study, in the order in which they came.

    costs: computed costs of rows [N, D] that are features too, [N, C]. lessons: what earlier studies taught.
    """

    def __init__(self, codes: Codes, objectives: int, costs: Costs | None = None) -> None:
        self.codes, self.objectives, self.costs = codes, objectives, costs
        self.features = Features(codes, costs.count if costs else 0)
        self.lessons: list[Lesson] = []
        self.successes = 0
        self.rows: list[np.ndarray] = []
        self.steps: list[float] = []
        self.lengths: set[float] = set()
        self.values: list[tuple[float, ...] | None] = []
        self.numbers: list[int] = []
        self._keys: set[bytes] = set()
        self._filled: dict[int, np.ndarray] = {}
        self._base: Base | None = None
        self._fits: dict[int, list[np.ndarray]] = {}  # by the number of results, the newest only

    def add(self, number: int, row: np.ndarray, steps: int, values: tuple[float, ...] | None) -> None:
        row = row.astype(np.float32)
        self.rows.append(row)
        self.steps.append(float(max(steps, 1)))
        self.lengths.add(self.steps[-1])
        self.values.append(None if values is None else tuple(bounded(value) for value in values))
        self.numbers.append(number)
        self._keys.add(row.tobytes())
        self.successes += values is not None

    def has(self, rows: np.ndarray) -> list[bool]:
        """Whether each of `rows` [N, D] is that of a result."""
        return [row.tobytes() in self._keys for row in rows.astype(np.float32)]

    @property
    def failures(self) -> int:
        """The number of results without values."""
        return len(self.values) - self.successes

    @property
    def several_lengths(self) -> bool:
        """Whether trials were trained for different lengths."""
        return len(self.lengths) > 1

    def found(self, places: Sequence[int]) -> np.ndarray:
        """The values of successful results, [N, M]."""
        return np.array([self.values[place] for place in places], dtype=float)

    def filled(self, place: int) -> np.ndarray:
        """The row of a result with a number for every hole."""
        if place not in self._filled:
            if len(self._filled) > 4 * MOST:
                self._filled.clear()
            rng = np.random.default_rng(place)
            self._filled[place] = self.codes.filled(self.rows[place].astype(float), rng)
        return self._filled[place]

    def fresh(self, base: Base) -> list[int]:
        """The places of the results since `base` that matter: the newest, and the best of the others."""
        places = [place for place in range(base.count, len(self.values)) if self.values[place] is not None]
        if len(places) <= 2 * FRESH:
            return places
        older = places[:-FRESH]
        best = pareto.order(self.found(older))[:FRESH]
        return [*(older[index] for index in sorted(best)), *places[-FRESH:]]

    def view(self, pending: Sequence[np.ndarray], rng: np.random.Generator) -> View:
        """What is known now; `pending` rows [D] run."""
        count = last_step(len(self.values), lambda each: each + BASE + each // BASE_SHARE, self._first())
        if self._base is None or self._base.count != count:
            self._base = self._made(count)
        return View(self, self._base, pending, rng)

    def confirmed(self, count: int) -> bool:
        """Whether what an earlier study predicts of the first `count` successes goes with their values, or against."""
        places = [place for place, values in enumerate(self.values) if values is not None][:count]
        rows, values = np.array([self.filled(place) for place in places]), self.found(places)
        return any(lesson.agreement(rows, values) >= CONFIRMED for lesson in self.lessons)

    def one_of_the_best(self, rng: Random) -> tuple[int, np.ndarray]:
        """(number of the trial, row) of a result near the front."""
        places = [place for place, values in enumerate(self.values) if values is not None][-MOST:]
        order = pareto.order(self.found(places))[:PARENTS]
        place = places[int(rng.choice(order.tolist()))]
        return self.numbers[place], self.rows[place].astype(float)

    def _first(self) -> int:
        """The results at the first fit: the smallest number with two successes."""
        found = [place for place, values in enumerate(self.values[: 64 * MOST]) if values is not None][:2]
        return found[-1] + 1

    def _made(self, count: int) -> Base:
        good = [place for place in range(count) if self.values[place] is not None]
        every = self.found(good)
        low, high = every.min(0), every.max(0)
        span = _span(low, high)
        ranked = pareto.order((every - low) / span)
        chosen = subset(ranked, MOST)
        places = [good[index] for index in chosen]
        longest = max(self.steps[:count])
        rows = features_of(self, np.array([self.filled(p) for p in places]), [self.steps[p] for p in places], longest)
        values = every[chosen]
        warps = [warp_of(column) for column in values.T]
        failed = [place for place in range(count) if self.values[place] is None][-MOST // 2 :]
        parameters = self._parameters(count)
        models = [
            Posterior(self._kernel(parameters[column], column), rows, warp.forward(values[:, column]))
            for column, warp in enumerate(warps)
        ]
        success = None
        if failed:
            both = [*failed, *places[: MOST // 2]]
            wins = np.array([0.0] * len(failed) + [1.0] * (len(both) - len(failed)))
            made = features_of(self, np.array([self.filled(place) for place in both]), None, longest)
            kernel = Kernel(self.features, parameters[-1])
            success = Posterior(kernel, made, wins)
        best = [good[index] for index in ranked[: max(PARENTS, int((pareto.ranks(every) == 0).sum()))]]
        return Base(count, self, longest, low, span, best, warps, models, success)

    def _kernel(self, parameters: np.ndarray, objective: int) -> Kernel:
        return Kernel(self.features, parameters, objective if self.lessons else None)

    def _parameters(self, count: int) -> list[np.ndarray]:
        """The parameters for each objective, and for success, fitted to the results up to a step of the schedule."""
        fit_at = last_step(count, lambda each: max(each + 4, int(each * REFIT)), self._first())
        if fit_at not in self._fits:
            self._fits = {fit_at: self._fit(fit_at)}
        return self._fits[fit_at]

    def _fit(self, count: int) -> list[np.ndarray]:
        good = [place for place in range(count) if self.values[place] is not None]
        every = self.found(good)
        span = _span(every.min(0), every.max(0))
        chosen = subset(pareto.order((every - every.min(0)) / span), FITTED)
        places = [good[index] for index in chosen]
        longest = max(self.steps[:count])
        rows = features_of(self, np.array([self.filled(p) for p in places]), [self.steps[p] for p in places], longest)
        found = []
        for objective, column in enumerate(every[chosen].T):
            values = standard(warp_of(column).forward(column))
            found.append(fitted(self.features, rows, values, None, objective=objective if self.lessons else None))
        failed = [place for place in range(count) if self.values[place] is None][-FITTED // 2 :]
        if failed:
            both = [*failed, *places[: FITTED // 2]]
            wins = np.array([0.0] * len(failed) + [1.0] * (len(both) - len(failed)))
            made = features_of(self, np.array([self.filled(place) for place in both]), None, longest)
            found.append(fitted(self.features, made, standard(wins), None))
        else:
            found.append(Kernel.default(self.features))
        return found


def last_step(count: int, after: object, first: int) -> int:
    """The last step of a schedule that begins with `first` and is at most `count`."""
    step = first
    while (further := after(step)) <= count:  # type: ignore[operator]
        step = further
    return step
