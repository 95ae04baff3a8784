"""How much the results of a search differ between seeds: compares studies that differ only in their seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from nas.report import trials
from nas.report.control import Control, controls
from nas.report.finals import verdict
from nas.report.probes import probes
from nas.report.tables import rendered, short
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, Study, Trial

# The 97.5 % points of Student's t for 1, 2, ... degrees of freedom.
T975 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
T975_MORE = 2.201  # for 11, an upper bound for more


@dataclass(frozen=True)
class Spread:
    """One number for each repeat."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean."""
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 for one value."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of the mean (Student's t); infinite for one value."""
        freedom = len(self.values) - 1
        if freedom < 1:
            return math.inf
        factor = T975[freedom - 1] if freedom <= len(T975) else T975_MORE
        return factor * self.deviation / math.sqrt(len(self.values))

    def to_dict(self) -> dict[str, float | None]:
        """Plain data; the ends of the 95 % interval of the mean are None for one value."""
        ends: tuple[float | None, float | None] = None, None
        if len(self.values) > 1:
            ends = self.mean - self.half_width, self.mean + self.half_width
        return {"mean": self.mean, "deviation": self.deviation, "low": ends[0], "high": ends[1]}

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"mean {short(self.mean)}, standard deviation {short(self.deviation)}, {short(low)} to {short(high)}"


@dataclass(frozen=True)
class Repeats:
    """The results of several studies.

    seeds: of the studies. best: the best value in each study of the first objective that all have. shares: the
    hypervolume of each front as a share of that of all fronts together; None if no study has a front. controls: the
    comparisons of each study by arm, for arms that all have. verdicts: of the finals, by study. without: why a study
    has no result, one sentence each. left_out: objectives that fronts ignore, because a study does not have them, or
    has demoted the probe.
    """

    objective: str
    studies: tuple[str, ...]
    seeds: tuple[int, ...]
    best: Spread
    shares: Spread | None
    fronts: tuple[int, ...]
    controls: dict[str, tuple[Control, ...]]
    verdicts: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row per study."""
        found: list[dict[str, Any]] = []
        for place, name in enumerate(self.studies):
            row = {"study": name, "seed": self.seeds[place], f"best {self.objective}": self.best.values[place]}
            row["front"] = self.fronts[place]
            if self.shares:
                row["hypervolume"] = round(self.shares.values[place], 3)
            row |= {f"than {each[place].name}": each[place].verdict for each in self.controls.values()}
            found.append(row)
        return found

    def sentences(self) -> list[str]:
        """Sentences: how much the seeds differ, the comparison with each control over the seeds, and the verdicts."""
        seeds = plural(len(self.seeds), "seed")
        shares = f"; the share of the hypervolume of all fronts has {self.shares}" if self.shares else ""
        ignored = f" The fronts leave out {', '.join(self.left_out)}." if self.left_out else ""
        return [
            f"Over {seeds} the best {self.objective} has {self.best}{shares}.{ignored}",
            *(self._against(each, seeds) for each in self.controls.values()),
            *(f"{study}: {sentence}" for study, sentence in self.verdicts.items()),
            *self.without,
        ]

    def _against(self, every: Sequence[Control], seeds: str) -> str:
        mean, low, high, verdict = _difference(every).values()
        return (
            f"The search was {verdict} than {every[0].name} over {seeds}: at equal cost its share of the hypervolume "
            f"differs by {mean:+.3f} ({low:+.3f} to {high:+.3f}, Student's t over the seeds)."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        spreads = {"best": self.best, "hypervolume": self.shares}
        return {
            "repeats": self.rows(),
            **{name: each and each.to_dict() for name, each in spreads.items()},
            "controls": {arm: [each.to_dict() for each in some] for arm, some in self.controls.items()},
            "differences": {arm: _difference(some) for arm, some in self.controls.items()},
            "verdicts": dict(self.verdicts),
            "without_result": list(self.without),
            "left_out": list(self.left_out),
            "sentences": self.sentences(),
        }

    def to_text(self) -> str:
        """A table, then the sentences."""
        title = f"The search with {plural(len(self.seeds), 'seed')}"
        return "\n".join([title, rendered(self.rows()), "", *self.sentences()])


def _difference(every: Sequence[Control]) -> dict[str, Any]:
    """mean, low, high: of the difference of the shares over the seeds, and the verdict."""
    found = Spread(tuple(each.shares[0] - each.shares[1] for each in every))
    low, high = max(found.mean - found.half_width, -1.0), min(found.mean + found.half_width, 1.0)
    verdict = "better" if low > 0 else "worse" if high < 0 else "not better"
    return {"mean": found.mean, "low": low, "high": high, "verdict": verdict}


def repeats(some: Sequence[tuple[Reader, Study]], without: Sequence[str] = ()) -> Repeats:
    """The results of several studies of one search. Raises ValueError if one of them has no finished trial.

    without: why other studies of the set are missing.
    """
    objectives, left_out = _shared(some)
    name = objectives[0]["name"]
    fronts = [trials.front(store, study, [each["name"] for each in objectives]) for store, study in some]
    best = [trials.best(store, study, name, 1) for store, study in some]
    if not all(best):
        raise ValueError("each study must have a finished trial.")
    compared = [{each.arm: each for each in controls(store, study)} for store, study in some]
    arms = [arm for arm in compared[0] if all(arm in each for each in compared)]
    return Repeats(
        objective=name,
        studies=tuple(study.name for _, study in some),
        seeds=tuple(study.seed for _, study in some),
        best=Spread(tuple(found[0].values[name] for found in best)),
        shares=Spread(_shares(fronts, objectives)) if any(fronts) else None,
        fronts=tuple(map(len, fronts)),
        controls={arm: tuple(each[arm] for each in compared) for arm in arms},
        verdicts={study.name: found.sentence for store, study in some if (found := verdict(store, study))},
        without=tuple(without),
        left_out=left_out,
    )


def _shared(some: Sequence[tuple[Reader, Study]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """(the objectives that all studies have and no study demoted, the names of the others)."""
    every = {each["name"]: each for _, study in some for each in study.objectives}
    listed = [{each["name"] for each in study.objectives} for _, study in some]
    demoted = {each.name for store, study in some for each in probes(store, study) if each.demoted}
    kept = [name for name in every if name not in demoted and all(name in names for names in listed)]
    return [every[name] for name in kept], tuple(name for name in every if name not in kept)


def _shares(fronts: Sequence[Sequence[Trial]], objectives: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    import numpy as np

    from nas.statistics.front_comparison import scaled, volumes

    signs = {each["name"]: -1 if each["direction"].startswith("max") else 1 for each in objectives}
    rows = [tuple(sign * trial.values[name] for name, sign in signs.items()) for front in fronts for trial in front]
    owners = np.array([place for place, front in enumerate(fronts) for _ in front])
    masks = np.array([np.ones(len(rows), dtype=bool), *(owners == place for place in range(len(fronts)))])
    whole, *own = volumes(scaled(rows), masks)
    return tuple(float(each / whole) for each in own)
