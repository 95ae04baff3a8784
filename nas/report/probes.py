"""How well the probes of a search rank its trained architectures, and which ones were demoted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nas.engine.audit import Audit
from nas.statistics.rank_correlation import Correlation
from nas.store.records import MAIN, SEARCH, UnitKind
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, Study

MOST = 5000  # results that are read, the first ones of the study


@dataclass(frozen=True)
class Probe:
    """A probe at the last audit.

    correlation: with the first metric after `steps` steps, where smaller is better for both; None if all scores are
    equal, or all values of the metric. demoted: whether the search ignores the probe.
    """

    name: str
    steps: int
    correlation: Correlation | None
    demoted: bool
    equal_metric: bool = False  # whether the metric has the same value for all trials

    def sentence(self) -> str:
        """A sentence: whether the probe ranks the trained architectures."""
        if self.equal_metric:
            return f"The metric is the same for all trials, so the probe {self.name} is demoted: the search ignores it."
        if self.correlation is None:
            return f"The probe {self.name} has the same score for all trials; it is demoted: the search ignores it."
        figures = (
            f"rank correlation {self.correlation}, {plural(self.correlation.trials, 'trial')} after "
            f"{plural(self.steps, 'step')}"
        )
        if self.correlation.high < 0:
            return (
                f"The probe {self.name} ranks the trials the wrong way round ({figures}); it is demoted: the search "
                "ignores it. The opposite direction would rank them."
            )
        if self.demoted:
            return f"The probe {self.name} does not rank the trials ({figures}); it is demoted: the search ignores it."
        return f"The probe {self.name} ranks the trials ({figures})."


def probes(store: Reader, study: Study) -> list[Probe]:
    """The probes of the search at their last audit; empty before the first audit, or if the search has no probes."""
    names = [each["name"] for each in study.objectives]
    staged = [(each["name"], each.get("stage", "metric")) for each in study.objectives]
    audit = Audit.of(staged)
    if audit is None:
        return []
    signs = [-1 if each["direction"].startswith("max") else 1 for each in study.objectives]
    for unit in store.results_since(study.id, limit=MOST, light=True):
        if unit.purpose == SEARCH and unit.arm == MAIN and unit.kind is UnitKind.TRAIN and unit.values:
            values = [sign * unit.values.get(name, math.nan) for sign, name in zip(signs, names)]
            audit.tell(unit.number, unit.steps, values)
    if not audit.steps:
        return []
    return [
        Probe(name, audit.steps, audit.found.get(name), place in audit.demoted, audit.equal_metric)
        for place, name in audit.probes.items()
    ]


def to_dict(some: list[Probe]) -> list[dict[str, Any]]:
    """Plain data."""
    return [{**asdict(each), "sentence": each.sentence()} for each in some]
