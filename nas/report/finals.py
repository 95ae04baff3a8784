"""How the finals of a study ended, as the search stored it: the entrants, the baseline and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

from nas.report.tables import short

if TYPE_CHECKING:
    from nas.store import Store, Study

BASELINE = "Transformer of the winner's size"


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One architecture of the finals. validation, test: the first objective, one value a seed.

    trial: of the search; for the baseline that of the winner whose size it has. trials: of the finals, one a seed.
    """

    trial: int
    hash: str
    architecture: str  # the text
    validation: tuple[float, ...]
    test: tuple[float, ...]
    trials: tuple[int, ...]
    parameters: int
    flops: float  # of a sequence
    is_baseline: bool = False

    @property
    def name(self) -> str:
        """What people call it."""
        return BASELINE if self.is_baseline else f"trial {self.trial}"

    def row(self) -> dict[str, Any]:
        """One row of the table of the finals."""
        return {
            "entrant": self.name,
            "validation": fmean(self.validation),
            "test": fmean(self.test),
            "test_seeds": " ".join(short(value) for value in self.test),
            "parameters": self.parameters,
            "flops": self.flops,
        }


@dataclass(frozen=True, kw_only=True)
class FinalsResult:
    """How the finals ended. `finalists` come best first, by validation data.

    verdict: word, difference, low, high, confidence, runs and reason of the comparison with the baseline on test data;
    None if there was nothing to compare. is_current: no unit of the study has ended since.
    """

    objective: str
    direction: str
    seeds: int
    steps: int
    finalists: tuple[Entrant, ...]
    baseline: Entrant | None
    verdict: dict[str, Any] | None
    sentence: str
    created_at: datetime
    is_current: bool

    @property
    def winner(self) -> Entrant:
        """The best finalist."""
        return self.finalists[0]

    def rows(self) -> list[dict[str, Any]]:
        """The entrants, one a row, the baseline last."""
        return [each.row() for each in (*self.finalists, *([self.baseline] if self.baseline else []))]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "objective": self.objective,
            "winner": self.winner.trial,
            "architecture": self.winner.architecture,
            "entrants": self.rows(),
            "verdict": self.verdict,
            "sentence": self.sentence,
            "created_at": self.created_at.isoformat(),
            "is_current": self.is_current,
        }


def verdict(store: Store, study: Study) -> FinalsResult | None:
    """The newest verdict of `study`; None if its finals have not ended, or ended before verdicts were stored."""
    found = store.verdict(study.id)
    if found is None:
        return None
    document = found.document
    return FinalsResult(
        objective=document["objective"],
        direction=document["direction"],
        seeds=document["seeds"],
        steps=document["steps"],
        finalists=tuple(_entrant(each) for each in document["finalists"]),
        baseline=document["baseline"] and _entrant(document["baseline"]),
        verdict=document["verdict"],
        sentence=document["sentence"],
        created_at=found.created_at,
        is_current=document["sequence"] >= store.mark(study.id).sequence,
    )


def _entrant(found: Mapping[str, Any]) -> Entrant:
    lists = {name: tuple(found[name]) for name in ("validation", "test", "trials")}
    return Entrant(**{**found, **lists})
