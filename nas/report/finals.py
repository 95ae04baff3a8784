"""The result of the finals of a study, as the search stored it: the entrants, the baselines and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

from nas.numbers import final_of
from nas.report.tables import short

if TYPE_CHECKING:
    from nas.store import Reader, Study

PLAIN = ("objective", "direction", "top", "seeds", "tuning_share", "word", "trend", "savings", "sentence")
LISTS = ("validation", "test", "seeds", "trials")
IN_RUNS = "FLOPs in the finals"  # the column of `flops_in_runs`
HALTING = (
    "FLOPs count the steps of halting that a trial took in the search, as in every other output; FLOPs in the finals "
    "count those that it took there. A baseline counts with those of the finals."
)


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One architecture of the finals. role: finalist, control or baseline.

    trial: of the search; for a baseline that of the winner, to which it is matched. validation, test: the first
    objective by length (training steps), one value for each seed that ended well; seeds, trials: of these values.
    failed: runs that failed, by length. options: the recipe options that tuning chose. at_the_edge: those whose best
    value is the smallest or largest of at least three that were tried. note: how far a baseline is from its intended
    size. Costs are for one sequence. flops: with halting blocks at the depth that the trial measured in the search, as
    in every other output; for a baseline as flops_in_runs. flops_in_runs: at the depth that the runs of the finals
    measured. training_flops: with all halting steps, which is the most that training computes. tokens_per_second: None
    if it was not measured.
    """

    name: str
    role: str
    is_winner: bool
    trial: int
    hash: str
    architecture: str  # the text
    note: str
    options: dict[str, Any]
    at_the_edge: tuple[str, ...]
    validation: dict[int, tuple[float, ...]]
    test: dict[int, tuple[float, ...]]
    seeds: dict[int, tuple[int, ...]]
    trials: dict[int, tuple[int, ...]]
    failed: dict[int, int]
    parameters: int
    flops: float
    training_flops: float
    state_bytes: float
    activation_bytes: float
    tokens_per_second: float | None
    flops_in_runs: float

    @property
    def halts_elsewhere(self) -> bool:
        """Whether halting blocks stopped at another depth in the finals than in the search."""
        return self.flops_in_runs != self.flops

    def to_dict(self) -> dict[str, Any]:
        """Plain data. finals: `trials` by their numbers among the finals."""
        return vars(self) | {
            "finals": {steps: [final_of(each) for each in some] for steps, some in self.trials.items()}
        }

    def row(self) -> dict[str, Any]:
        """One row of the table of the finals."""
        means = {f"test, {steps} steps": fmean(values) if values else None for steps, values in self.test.items()}
        return {
            "entrant": f"{self.name} *" if self.is_winner else self.name,
            **means,
            **{name: short(value) if isinstance(value, float) else value for name, value in self.options.items()},
            "parameters": self.parameters,
            "FLOPs": self.flops,
            IN_RUNS: self.flops_in_runs,
            "state bytes": self.state_bytes or None,
            "activation bytes": self.activation_bytes,
            "tokens/s": self.tokens_per_second and round(self.tokens_per_second),
            "failed runs": sum(self.failed.values()) or None,
        }


@dataclass(frozen=True, kw_only=True)
class FinalsResult:
    """The result of the finals. Entrants: finalists, then controls, then baselines; the best of each role first.

    word, verdicts, trend: the comparison of the winner with the best baseline on test data, for all lengths together,
    at each length, and how the difference changes from the shortest length to the longest; differences are winner minus
    baseline, in the metric's own sign. `against` names the baseline at each length. savings: how much less training the
    winner needs to reach the best baseline, with two lengths or more. controls: the comparison with the best of each
    control arm, by name. out: entrants whose runs all failed. missing: baselines that could not be made, one sentence
    each. left_out: parts of the default finals that the search file leaves out. tries: the options that tuning tried.
    outdated: why the verdict is not that of the study as it is now; empty if it is.
    """

    objective: str
    direction: str
    top: int
    seeds: int
    lengths: tuple[int, ...]
    tries: tuple[dict[str, Any], ...]
    tuning_share: float
    entrants: tuple[Entrant, ...]
    against: dict[int, str]
    word: str | None
    verdicts: dict[int, dict[str, Any]]
    trend: dict[str, Any] | None
    savings: dict[str, Any] | None
    controls: dict[str, dict[str, Any]]
    out: tuple[str, ...]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]
    sentence: str
    created_at: datetime
    outdated: str

    @property
    def is_current(self) -> bool:
        """Whether no unit has ended since, and the search file has the same finals."""
        return not self.outdated

    @property
    def winner(self) -> Entrant:
        """The best finalist on validation data."""
        return next(each for each in self.entrants if each.is_winner)

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The comparison at the longest length: word, difference, low, high, confidence, runs and more."""
        return self.verdicts.get(self.lengths[-1])

    def rows(self) -> list[dict[str, Any]]:
        """The entrants, one per row. Columns without a value are left out."""
        rows = [each.row() for each in self.entrants]
        if not any(each.halts_elsewhere for each in self.entrants):
            rows = [{name: value for name, value in row.items() if name != IN_RUNS} for row in rows]
        empty = {name for name in rows[0] if all(row.get(name) is None for row in rows)}
        return [{name: value for name, value in row.items() if name not in empty} for row in rows]

    def notes(self) -> list[str]:
        """Remarks about the table, one line each."""
        lines = [f"The verdict is not up to date: {self.outdated}."] if self.outdated else []
        if any(each.halts_elsewhere for each in self.entrants):
            lines.append(HALTING)
        if len(self.tries) > 1:
            names = ", ".join(self.tries[0])
            lines.append(
                f"Every entrant tried {len(self.tries)} values of {names} on validation data "
                f"({self.tuning_share:.0%} of the training steps of the finals)."
            )
        edges = [f"{name} {each.options[name]:g} of {each.name}" for each in self.entrants for name in each.at_the_edge]
        if edges:
            lines.append(f"Best at the edge of what was tried, so a wider range may give more: {'; '.join(edges)}.")
        lines += [f"{each.name}: {each.note}." for each in self.entrants if each.note]
        lines += [f"{name}: every run failed." for name in self.out]
        lines += self.missing
        if self.left_out:
            lines.append(f"Left out by this search file: {', '.join(self.left_out)}.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "objective": self.objective,
            "winner": self.winner.trial,
            "architecture": self.winner.architecture,
            "lengths": self.lengths,
            "seeds": self.seeds,
            "entrants": [each.to_dict() for each in self.entrants],
            "against": self.against,
            "word": self.word,
            "verdicts": self.verdicts,
            "trend": self.trend,
            "savings": self.savings,
            "controls": self.controls,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "notes": self.notes(),
            "created_at": self.created_at.isoformat(),
            "is_current": self.is_current,
        }


def verdict(store: Reader, study: Study) -> FinalsResult | None:
    """The newest verdict of `study`; None if its finals have not ended, or ended before verdicts were stored."""
    found = store.verdict(study.id)
    if found is None:
        return None
    outdated = ""
    if found.document["sequence"] < store.mark(study.id).sequence:
        outdated = "units have ended since"
    elif not answers(found.document, study.config.get("finals")):
        outdated = "the search file has other finals now, and `nas search` has not ended them"
    return _read(found.document, found.created_at, outdated)


def answers(document: Mapping[str, Any], finals: Mapping[str, Any] | None) -> bool:
    """Whether a stored verdict answers a search file with these finals: it is of them, or `nas verdict` extended them.

    If the file has no finals, each verdict answers it.
    """
    if not finals or not finals.get("top"):
        return True
    return finals in (document["finals"], document.get("extends"))


def _read(document: Mapping[str, Any], created_at: datetime, outdated: str) -> FinalsResult:
    plain: dict[str, Any] = {name: document[name] for name in PLAIN}
    sign = -1 if document["direction"].startswith("max") else 1
    return FinalsResult(
        **plain
        | _comparison(document, sign)
        | {name: tuple(document[name]) for name in ("lengths", "tries", "out", "missing", "left_out")},
        entrants=tuple(_entrant(each) for each in document["entrants"]),
        against=_by_length(document["against"]),
        controls={name: {**found, **_comparison(found, sign)} for name, found in document["controls"].items()},
        created_at=created_at,
        outdated=outdated,
    )


def _comparison(found: Mapping[str, Any], sign: int) -> dict[str, Any]:
    """The verdicts by length, and the trend, with the sign of the metric: they are stored as if it were minimised."""
    trend = found["trend"]
    return {
        "verdicts": {steps: _turned(each, sign) for steps, each in _by_length(found["verdicts"]).items()},
        "trend": trend and _turned(trend, sign),
    }


def _turned(found: Mapping[str, Any], sign: int) -> dict[str, Any]:
    """`found` with negated differences and intervals if `sign` is -1. Unknown numbers are None."""
    if sign > 0:
        return dict(found)
    ends = {"low": found["high"], "high": found["low"]}
    numbers = {**{name: found[name] for name in ("difference", "change") if name in found}, **ends}
    return {**found, **{name: value if value is None else 0.0 - value for name, value in numbers.items()}}


def _by_length(found: Mapping[str, Any]) -> dict[int, Any]:
    return {int(steps): value for steps, value in found.items()}


def _entrant(found: Mapping[str, Any]) -> Entrant:
    lists = {name: {steps: tuple(each) for steps, each in _by_length(found[name]).items()} for name in LISTS}
    others = {"failed": _by_length(found["failed"]), "at_the_edge": tuple(found["at_the_edge"])}
    return Entrant(**{**found, **lists, **others})
