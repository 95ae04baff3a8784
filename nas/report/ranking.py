"""How well size, or a lower rung, predicts the quality of the trials of a search, by Spearman's rank correlation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nas.statistics.rank_correlation import CONFIDENCE, Correlation, correlation
from nas.store.records import SEARCH
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, RungResult, Study

LEAST_SHOWN = 10  # trials of a rung that people are told about
EXPLAINS = 0.8  # size alone explains the ranking if the whole interval is beyond this number
MOST = 5000  # results and trials that are read, the first ones of the study
SKIPPING = ("halving", "hyperband")  # the schedulers that skip a rung that does not rank


@dataclass(frozen=True)
class SizeCorrelation:
    """The correlations of quality with size at one rung. Positive: larger models are better. None: too few trials."""

    steps: int
    trials: int
    parameters: Correlation | None
    flops: Correlation | None

    @property
    def known(self) -> dict[str, Correlation]:
        """The correlations that are known, by the name of the size."""
        both = {"parameters": self.parameters, "FLOPs": self.flops}
        return {name: each for name, each in both.items() if each}

    @property
    def explanation(self) -> str:
        """A sentence if size alone explains the ranking; "" if it does not.

        It does if the whole interval is above 0.8 or below -0.8. Only the size that correlates more, parameters or
        FLOPs, is tested and named.
        """
        if not self.known:
            return ""
        name, found = max(self.known.items(), key=lambda each: abs(each[1].value))
        if found.low <= EXPLAINS and found.high >= -EXPLAINS:
            return ""
        better = "larger" if found.value > 0 else "smaller"
        return f"{name[0].upper()}{name[1:]} alone explain the ranking ({better} is better): rank correlation {found}."

    def sentence(self) -> str:
        """The correlations as text; "" if none is known."""
        if not self.known:
            return ""
        numbers = ", ".join(f"with {name} {each}" for name, each in self.known.items())
        trials = f"{plural(self.trials, 'trial')} at {plural(self.steps, 'step')}"
        said = f"Rank correlation of quality {numbers}; {trials}, 95% intervals."
        return f"{self.explanation}\n{said}".lstrip()


@dataclass(frozen=True)
class RungCorrelation:
    """The correlation of quality at one rung with quality at the next, over the trials that reached both."""

    steps: int
    next_steps: int
    correlation: Correlation

    def sentence(self) -> str:
        """The correlation as a sentence."""
        useless = "; it is not shown that the lower one ranks the trials" if self.correlation.low <= 0 else ""
        return (
            f"Rank correlation of quality at {self.steps:,} and {plural(self.next_steps, 'step')}: {self.correlation}, "
            f"{plural(self.correlation.trials, 'trial')} that reached both{useless}."
        )


@dataclass(frozen=True)
class Ranking:
    """What predicts quality in a search. sizes: one entry per rung. rungs: one for each rung and the next."""

    sizes: tuple[SizeCorrelation, ...]
    rungs: tuple[RungCorrelation, ...]
    skipped: tuple[tuple[int, int], ...] = ()  # steps of each rung that did not rank, and of that where trials started

    @property
    def starts(self) -> tuple[int, ...]:
        """The steps of skipped rungs, and of those where trials started instead; empty if none was skipped."""
        return tuple(sorted({steps for pair in self.skipped for steps in pair}))

    @property
    def shown(self) -> SizeCorrelation | None:
        """The highest rung with enough trials for a sentence; None if there is none."""
        return next((each for each in reversed(self.sizes) if each.trials >= LEAST_SHOWN), None)

    @property
    def explained(self) -> str:
        """A sentence if size alone explains the ranking; "" if it does not."""
        return self.shown.explanation if self.shown else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "confidence": CONFIDENCE,
            "explained": self.explained,
            "sizes": [asdict(each) for each in self.sizes],
            "rungs": [asdict(each) for each in self.rungs],
            "starts": list(self.starts),
            "sentences": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """The sentences: about size at one rung, and about each rung and the next."""
        size = self.shown.sentence() if self.shown else ""
        return [each for each in (size, *self.of_rungs()) if each]

    def of_rungs(self) -> list[str]:
        """The sentences about each rung and the next."""
        skipped = [
            f"The rung at {plural(lower, 'step')} did not rank the trials, so later ones started at "
            f"{plural(higher, 'step')}."
            for lower, higher in self.skipped
        ]
        return [*(rung.sentence() for rung in self.rungs), *skipped]


def ranking(store: Reader, study: Study) -> Ranking:
    """What predicts the first objective in the search of `study`, over its first 5,000 results."""
    objective = study.objectives[0]
    sign = 1 if objective["direction"].startswith("max") else -1
    results = store.rung_results(study.id, objective["name"], MOST)
    return replace(of_results(results, sign), skipped=_skipped(store, study, results))


def _skipped(store: Reader, study: Study, results: Sequence[RungResult]) -> tuple[tuple[int, int], ...]:
    """The steps of each rung that later trials skipped, and of the rung where they started instead."""
    first: dict[int, int] = {}
    for each in results:
        first[each.number] = min(each.steps, first.get(each.number, each.steps))
    scheduler = study.config.get("scheduler", {})
    if scheduler.get("name") not in SKIPPING or len(set(first.values())) < 2:
        return ()
    from nas.schedulers.registry import make  # pydantic: most studies do not need it

    options = scheduler.get("options", {})
    made, started = make(scheduler["name"], **options), Counter[str]()
    starts: dict[int, set[int]] = {}  # of each bracket, by the steps of its lowest rung
    for trial in store.trials(study.id, purposes=(SEARCH,), limit=MOST, light=True):
        usual = made.start(started[trial.arm])  # it was told nothing, so it skips nothing
        started[trial.arm] += 1
        if first.get(trial.number, usual) > usual:
            starts.setdefault(usual, {usual}).add(first[trial.number])
    rungs = set(options.get("rungs", ()))
    return tuple(sorted({pair for each in starts.values() for pair in pairwise(sorted(each & rungs))}))


def of_results(results: Sequence[RungResult], sign: int) -> Ranking:
    """The correlations of these results. sign: 1 if a larger value is better, -1 if a smaller one is."""
    rungs: dict[int, list[RungResult]] = {}
    for each in results:
        rungs.setdefault(each.steps, []).append(each)
    ordered = sorted(rungs.items())
    between = [
        RungCorrelation(steps, later, found)
        for (steps, here), (later, there) in pairwise(ordered)
        if (found := _of_both(here, there)) is not None
    ]
    return Ranking(tuple(_of_sizes(steps, some, sign) for steps, some in ordered), tuple(between))


def _of_sizes(steps: int, results: Sequence[RungResult], sign: int) -> SizeCorrelation:
    def with_size(size: Callable[[RungResult], float | None]) -> Correlation | None:
        pairs = [(of, sign * each.value) for each in results if (of := size(each)) is not None]
        return correlation([of for of, _ in pairs], [quality for _, quality in pairs])

    trained = all(each.step_flops is not None for each in results)  # the two are on different scales
    flops = with_size(lambda each: each.step_flops if trained else each.flops)
    return SizeCorrelation(steps, len(results), with_size(lambda each: each.parameters), flops)


def _of_both(here: Sequence[RungResult], there: Sequence[RungResult]) -> Correlation | None:
    first, second = ({each.number: each.value for each in some} for some in (here, there))
    both = sorted(first.keys() & second.keys())
    return correlation([first[number] for number in both], [second[number] for number in both])
