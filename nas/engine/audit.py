"""The audit of probes: whether the scores of untrained models rank the trained ones.

As trials finish, the rank correlation of each probe with the first metric is computed with its interval. A probe whose
interval is not above 0 is demoted: strategies and schedulers then see the same value for all trials in its place. It
counts again if a later audit finds a correlation. An audit takes place when `FIRST` trials were trained equally long,
and each time that their number has grown by half. So the demoted probes follow from the log alone.

The length of training that most trials reached counts. Those that trained longer were chosen by their quality, and
among them a useful probe has a much lower correlation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nas.statistics.rank_correlation import Correlation, correlation

FIRST = 20  # trials with a score and a result of the same length of training
GROWTH = 1.5
MASKED = 0.0  # the value of a demoted probe


class Audit:
    """probes: {place among the objectives: name}. quality: the place of the first metric. Values are minimised."""

    def __init__(self, probes: Mapping[int, str], quality: int) -> None:
        self.probes, self.quality = dict(probes), quality
        self.demoted: frozenset[int] = frozenset()
        self.found: dict[str, Correlation] = {}
        self.steps = 0  # the length of training that was compared
        self.equal_metric = False  # whether all trials that were compared have the same value of the metric
        self._results: dict[int, dict[int, tuple[float, ...]]] = {}  # length -> trial -> values
        self._next: dict[int, int] = {}  # length -> results at its next audit

    def tell(self, number: int, steps: int, values: Sequence[float] | None) -> bool:
        """A trial reached `steps` in all. Returns whether the set of demoted probes changed."""
        if values is None:
            return False
        results = self._results.setdefault(steps, {})
        results[number] = tuple(values)
        if not self._counts(steps) or len(results) < self._next.get(steps, FIRST):
            return False
        self._next[steps] = int(GROWTH * len(results))
        return self._look(steps)

    def _counts(self, steps: int) -> bool:
        """Whether this length of training is the one to compare."""
        return steps == max(self._results, key=lambda each: (len(self._results[each]), each))

    def _look(self, steps: int) -> bool:
        """Compare all trials that were trained for `steps`."""
        self.steps, before = steps, self.demoted
        results = self._results[steps].values()
        quality = [values[self.quality] for values in results]
        self.equal_metric = len(set(quality)) == 1
        seen = {place: correlation([values[place] for values in results], quality) for place in self.probes}
        self.found = {self.probes[place]: each for place, each in seen.items() if each is not None}
        self.demoted = frozenset(place for place, each in seen.items() if each is None or each.low <= 0)
        return self.demoted != before

    def masked(self, values: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """`values` as strategies see them."""
        if values is None or not self.demoted:
            return values
        return tuple(MASKED if place in self.demoted else value for place, value in enumerate(values))

    @classmethod
    def of(cls, stages: Iterable[tuple[str, str]]) -> Audit | None:
        """An audit of objectives (name, stage); None if there is no probe, or no metric to compare it with."""
        listed = list(stages)
        probes = {place: name for place, (name, stage) in enumerate(listed) if stage == "probe"}
        metrics = [place for place, (_, stage) in enumerate(listed) if stage == "metric"]
        return cls(probes, metrics[0]) if probes and metrics else None
