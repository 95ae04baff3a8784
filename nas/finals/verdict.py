"""The verdict of the finals of a study, as the store keeps it and as every page and command shows it.

It imports neither torch nor NumPy. `nas.finals.judgement` makes it, `nas.report.verdict` reads it.
"""

from __future__ import annotations

from datetime import datetime
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from nas.report.tables import short

Word = Literal["better", "worse", "no difference shown"]
Course = Literal["shrinks", "holds", "grows", "no change shown"]
OverallWord = Literal["is better", "learns faster", "no difference shown", "worse"]
Role = Literal["finalist", "control", "baseline"]

IN_RUNS = "FLOPs in the finals"  # the column of `flops_in_runs`
HALTING = (
    "FLOPs count the steps of halting that a trial took in the search, as in every other output; FLOPs in the finals "
    "count those that it took there. A baseline counts with those of the finals."
)


class Part(BaseModel):
    """A part of a verdict. Its keyword arguments are the keys of the stored JSON."""

    model_config = ConfigDict(frozen=True)


class Comparison(Part):
    """Two entrants at one length of training: mean of the candidate minus mean of the baseline, with its interval.

    difference: the mean over the seeds that finished for both; None without runs. low, high: its interval with this
    `confidence`; None if there are too few seeds. reason: why the word is not what the interval says, or what the
    interval does not cover; empty if there is nothing to say.
    """

    word: Word
    difference: float | None
    low: float | None
    high: float | None
    confidence: float
    runs: tuple[int, int]  # that finished, of the candidate and of the baseline
    reason: str = ""
    seeds: int = 0  # that finished for both
    documents: int = 0  # that the interval takes as a sample; 0: it covers other seeds only
    seed_share: float | None = None  # of the variance of the difference, 0 to 1; None if it was not estimated
    failed: tuple[int, int] = (0, 0)  # runs of the candidate, of the baseline

    def negated(self) -> Comparison:
        """The same with the sign of a metric that is maximised."""
        return self.model_copy(update=_negated(difference=self.difference, low=self.high, high=self.low))


class Trend(Part):
    """How much the difference changes from the shortest length to the longest.

    word: "shrinks" or "grows", of the lead, if the interval excludes zero. "holds" if it includes zero and is narrow:
    no end is further from zero than half of the difference at the shortest length. Else "no change shown".
    """

    word: Course
    change: float
    low: float
    high: float

    def negated(self) -> Trend:
        """The same with the sign of a metric that is maximised."""
        return self.model_copy(update=_negated(change=self.change, low=self.high, high=self.low))


def _negated(**numbers: float | None) -> dict[str, float | None]:
    return {name: value if value is None else 0.0 - value for name, value in numbers.items()}


class Comparisons(Part):
    """Two entrants at every length: a comparison for each number of training steps, and a word for all of them.

    trend: None if there is one length, or if a length has fewer than two seeds that finished for both.
    """

    word: OverallWord
    lengths: dict[int, Comparison]
    trend: Trend | None = None

    @property
    def longest(self) -> Comparison:
        """The comparison at the largest number of steps."""
        return self.lengths[max(self.lengths)]

    def negated(self) -> Comparisons:
        """The same with the sign of a metric that is maximised."""
        lengths = {steps: each.negated() for steps, each in self.lengths.items()}
        return Comparisons(word=self.word, lengths=lengths, trend=self.trend and self.trend.negated())


class Savings(Part):
    """Shares that the winner saves, such as 0.3 for 30 % less; below zero it needs more.

    flops: of training, with its interval (low, high); None where the trained lengths do not tell. seconds: of training,
    by the measured speeds. parameters: of the model. at_shortest: the winner is there at the shortest length already,
    so it may save more; open_above: the same for `high`.
    """

    flops: float | None
    low: float | None
    high: float | None
    seconds: float | None
    parameters: float
    at_shortest: bool
    open_above: bool = False
    sentence: str = ""


class EntrantResult(Part):
    """What one architecture of the finals reached.

    trial: of the search; for a baseline that of the winner, to which it is matched. validation, test: the first
    objective by length (training steps), one value for each seed that ended well; test is validation if the task has no
    test data. seeds, trials, finals: of these values; `finals` counts from 1 as people do. failed: runs that failed, by
    length. options: the recipe options that tuning chose. at_the_edge: those whose best value is the smallest or
    largest of at least three that were tried. note: how far a baseline is from its intended size. Costs are for one
    sequence. flops: with halting blocks at the depth that the trial measured in the search, as in every other output;
    for a baseline as flops_in_runs. flops_in_runs: at the depth that the runs of the finals measured. training_flops:
    with all halting steps, which is the most that training computes.
    """

    name: str
    role: Role
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
    finals: dict[int, tuple[int, ...]]
    failed: dict[int, int]
    parameters: int
    flops: float
    flops_in_runs: float
    training_flops: float
    state_bytes: float
    activation_bytes: float
    tokens_per_second: float

    @property
    def halts_elsewhere(self) -> bool:
        """Whether halting blocks stopped at another depth in the finals than in the search."""
        return self.flops_in_runs != self.flops

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
            "tokens/s": round(self.tokens_per_second) or None,
            "failed runs": sum(self.failed.values()) or None,
        }


class Verdict(Part):
    """How the finals ended. Entrants: finalists, then controls, then baselines; the best of each role first.

    finals: those that were trained, as a study stores them; extends: those of the search file if `nas verdict` extended
    them. sequence: the last change of the study that was read. Differences are winner minus other entrant on test data,
    in the metric's own sign. comparison: with the best baseline; None without baselines. against: the name of that
    baseline by length. controls: the comparison with the best of each control arm, by name; None if it is the winner's
    architecture. empty_arms: control arms without a finished trial. out: entrants whose runs all failed. missing:
    baselines that could not be made, one sentence each. left_out: parts of the default finals that these do not have.
    tries: the options that tuning tried. tuning_share: of all training steps of the finals. savings: with two lengths
    or more. created_at, outdated: known when it is read; the second says why it is not that of the study as it is now.
    """

    finals: dict[str, Any]
    extends: dict[str, Any] | None
    sequence: int
    objective: str
    direction: str
    seeds: int
    lengths: tuple[int, ...]
    tries: tuple[dict[str, Any], ...]
    tuning_share: float
    entrants: tuple[EntrantResult, ...]
    against: dict[int, str]
    comparison: Comparisons | None
    controls: dict[str, Comparisons | None]
    empty_arms: tuple[str, ...]
    out: tuple[str, ...]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]
    savings: Savings | None = None
    sentence: str = ""
    created_at: datetime | None = None
    outdated: str = ""

    def document(self) -> dict[str, Any]:
        """Plain data for the store."""
        return self.model_dump(mode="json", exclude={"created_at", "outdated"})

    def to_dict(self) -> dict[str, Any]:
        """Plain data for other programs: everything, the winner's trial, and the remarks."""
        found = self.model_dump(mode="json")
        return found | {"winner": self.winner.trial, "notes": self.notes(), "is_current": self.is_current}

    @property
    def is_current(self) -> bool:
        """Whether no unit has ended since, and the search file has the same finals."""
        return not self.outdated

    @property
    def winner(self) -> EntrantResult:
        """The best finalist on validation data."""
        return next(each for each in self.entrants if each.is_winner)

    @property
    def finalists(self) -> tuple[EntrantResult, ...]:
        """The finalists, best first."""
        return tuple(each for each in self.entrants if each.role == "finalist")

    @property
    def baselines(self) -> tuple[EntrantResult, ...]:
        """The baselines, best first."""
        return tuple(each for each in self.entrants if each.role == "baseline")

    @property
    def baseline(self) -> EntrantResult | None:
        """The best baseline at the longest length; None if there is none."""
        name = self.against.get(self.lengths[-1])
        return next((each for each in self.entrants if each.name == name), None)

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
