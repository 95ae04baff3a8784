"""How often do the finals say "better" for equal entrants, and how often for an entrant with a true lead?

    python -m benchmarks.verdict [--finals 1000] [--runs 40] [--quick] [--json]

First table: simulated finals. Each run has a random effect of its seed, each entrant has random effects on single
documents, and each run has noise on each document (constants below). The candidate is the best of `top` on validation
data, where the seed effect of a run is nearly the same as on test data. The baseline is the best of `baselines` on
validation data. All entrants are equal, so "better" should appear in 2.5 % of the finals. Shifted by a true lead, the
same finals give the power. `old` is the earlier rule: Welch's interval over seeds, which ignores documents and the
selection of the best.

Second table: the same with one real architecture as all entrants. It is trained with many seeds, and each final draws
seeds for each entrant. Finals share runs, so these rates are less certain than 1,000 separate finals.

Bar: "better" in 1 % to 4 %. If the baseline is the best of several equal ones, only the upper end counts: the best of
several is lucky too, so "better" is rarer.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.support.report import report
from nas import tasks
from nas.documents import Documents
from nas.finals.interval import Runs, compare
from nas.tasks.fields import fitted
from nas.training import standalone
from searchspace import zoo

SEED_LUCK = 0.008  # standard deviation between the seeds of an entrant, bits per byte, as measured in the quickstart
SAME_LUCK = 0.8  # correlation of the seed effect of a run on validation and on test data
DOCUMENT_SPREAD = 0.025  # standard deviation over documents of the difference of two entrants, as measured
BOTH = 0.01  # standard deviation of the remaining difference of two runs on single documents
LEADS = (0.02, 0.05, 0.1)  # bits per byte
NUMBERS = {"none": 0, "40": 40, "60, heavy tails": 60, "40, one has 80 %": 40}  # of documents
BAR = (0.01, 0.04)

TASK = {"language_model": {"length": 64, "batch": 8, "evaluation": 40_960}}
ARCHITECTURE, STEPS = "transformer_decoder", 80


@dataclass(frozen=True)
class Entrant:
    """An entrant: its mean on validation data, and its runs on test data."""

    validation: float
    runs: Runs


@dataclass(frozen=True)
class Case:
    """A row: the numbers of seeds, finalists and baselines of a final; documents as in `NUMBERS`."""

    seeds: int
    documents: str
    top: int = 1
    baselines: int = 1


FIELDS = [(1, 1), (2, 1), (3, 1), (1, 3), (3, 3)]
CASES = [
    *(Case(n, each, *field) for n in (2, 3, 5) for each in ("none", "60, heavy tails") for field in FIELDS),
    *(Case(3, "40", *field) for field in FIELDS),
    *(Case(2, "40", top=top) for top in (1, 3)),
    Case(3, "40, one has 80 %"),
]


def simulated(random: np.random.Generator, case: Case) -> list[Entrant]:
    """Equal entrants: the finalists, then the baselines."""
    count = NUMBERS[case.documents]
    entrants = case.top + case.baselines
    luck = random.normal(0, SEED_LUCK, (entrants, case.seeds))
    other = random.normal(0, SEED_LUCK, luck.shape)
    validation = (SAME_LUCK * luck + math.sqrt(1 - SAME_LUCK**2) * other).mean(1)
    if not count:
        return [_entrant(value, row) for value, row in zip(validation, luck, strict=True)]
    weights = np.stack([sizes(random, case.documents) for _ in range(2)])  # of validation and of test documents
    own = random.normal(0, DOCUMENT_SPREAD / math.sqrt(2), (2, entrants, count))
    noise = random.normal(0, BOTH / math.sqrt(2), (entrants, case.seeds, count))
    values = 2.5 + luck[:, :, None] + own[1][:, None] + noise  # [E, S, D]
    validation = validation + own[0] @ weights[0] / weights[0].sum()
    return [_entrant(value, rows, weights[1]) for value, rows in zip(validation, values, strict=True)]


def sizes(random: np.random.Generator, documents: str) -> np.ndarray:
    """The sizes of the documents, [D]. Those of 40 are spread as in the embedded text."""
    count = NUMBERS[documents]
    if documents == "40, one has 80 %":
        return np.array([4.0 * (count - 1), *np.ones(count - 1)])
    return random.lognormal(8, 1.5 if count == 60 else 0.8, count)


def _entrant(validation: float, values: np.ndarray, weights: np.ndarray | None = None) -> Entrant:
    """values: [S], or [S, D] with weights [D]."""
    seeds = tuple(range(len(values)))
    if weights is None:
        return Entrant(validation, Runs(seeds, tuple(map(float, values))))
    names = tuple(map(str, range(len(weights))))
    documents = tuple(Documents("bits_per_byte", names, row * weights, weights) for row in values)
    return Entrant(validation, Runs(seeds, tuple(each.value for each in documents), documents))


def best(entrants: Sequence[Entrant]) -> Entrant:
    """The best on validation data."""
    return min(entrants, key=lambda each: each.validation)


def ends(entrants: Sequence[Entrant], top: int) -> tuple[float, float]:
    """The upper ends of the interval of a final, ours and the old rule's: below zero the word is "better"."""
    candidate, baseline = best(entrants[:top]), best(entrants[top:])
    high = compare(candidate.runs, baseline.runs, chosen_from=top).high
    assert high is not None  # every entrant has several runs
    return high, welch(candidate.runs, baseline.runs)


def welch(candidate: Runs, baseline: Runs) -> float:
    """The upper end of Welch's 95 % interval of the difference of the means."""
    from scipy.special import stdtrit

    ours, theirs = (np.var(each.values, ddof=1) / len(each.values) for each in (candidate, baseline))
    freedom = (ours + theirs) ** 2 / (ours**2 / (len(candidate.values) - 1) + theirs**2 / (len(baseline.values) - 1))
    difference = fmean(candidate.values) - fmean(baseline.values)
    return float(difference + stdtrit(freedom, 0.975) * math.sqrt(ours + theirs))


def rates(finals: int, top: int, draw: Callable[[], Sequence[Entrant]], leads: Sequence[float]) -> dict[str, Any]:
    """The share of `finals` that end with "better": for equal entrants, and with each of the true `leads`.

    Every interval moves with the candidate's values, so one final serves all leads.
    """
    found = np.array([ends(draw(), top) for _ in range(finals)])  # [finals, 2]
    shares = [float((found[:, 0] < lead).mean()) for lead in (0.0, *leads)]
    powers = {f"power at {lead:g}": share for lead, share in zip(leads, shares[1:], strict=True)}
    return {"better": shares[0], "old": float((found[:, 1] < 0).mean()), **powers}


def simulated_row(case: Case, finals: int) -> dict[str, Any]:
    random = np.random.default_rng([case.seeds, case.top, case.baselines, *map(ord, case.documents)])
    shares = rates(finals, case.top, lambda: simulated(random, case), LEADS)
    row = {"seeds": case.seeds, "documents": case.documents, "top": case.top, "baselines": case.baselines, **shares}
    lowest = BAR[0] if case.baselines == 1 else 0.0
    return {**row, "reached": "yes" if lowest <= row["better"] <= BAR[1] else "no"}


@dataclass(frozen=True)
class Run:
    """One training run of the real architecture: its value on validation data, its documents on test data."""

    validation: float
    documents: Documents


def trained(runs: int, steps: int) -> Iterator[Run]:
    """The real architecture with one seed after another. Raises SystemExit if training fails."""
    task = tasks.load(TASK)
    task.prepare(None)
    architecture = fitted(zoo.load(ARCHITECTURE, "tiny"), task).text()
    for seed in range(runs):
        outcome = standalone.train(architecture, TASK, {"learning_rate": 5e-3}, steps=steps, seed=seed, threads=1)
        if outcome.failure is not None:
            raise SystemExit(f"{outcome.failure.kind}: {outcome.failure.message}")
        _note(f"run {seed + 1} of {runs}: {outcome.metrics['test/bits_per_byte']:.4f} bits per byte")
        yield Run(outcome.metrics["bits_per_byte"], outcome.documents["test"])


def drawn(random: np.random.Generator, pool: Sequence[Run], seeds: int, entrants: int) -> list[Entrant]:
    """Entrants with different runs of `pool`."""
    chosen = random.choice(len(pool), (entrants, seeds), replace=False)
    return [_of_runs([pool[place] for place in row]) for row in chosen]


def _of_runs(runs: Sequence[Run]) -> Entrant:
    documents = tuple(each.documents for each in runs)
    values = tuple(each.value for each in documents)
    return Entrant(fmean(each.validation for each in runs), Runs(tuple(range(len(runs))), values, documents))


def real_row(pool: Sequence[Run], seeds: int, top: int, finals: int) -> dict[str, Any]:
    random = np.random.default_rng([seeds, top])
    shares = rates(finals, top, lambda: drawn(random, pool, seeds, top + 1), LEADS[:1])
    return {"seeds": seeds, "documents": len(pool[0].documents.names), "top": top, **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--finals", type=int, default=1000, metavar="N", help="simulated finals a row")
    parser.add_argument("--runs", type=int, default=40, metavar="N", help="training runs of the real architecture")
    parser.add_argument("--quick", action="store_true", help="few finals and steps, only to check that everything runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    finals, steps = (20, 2) if arguments.quick else (arguments.finals, STEPS)
    rows = []
    for case in CASES:
        rows.append(simulated_row(case, finals))
        _note(f"{case}: better in {rows[-1]['better']:.1%}, old {rows[-1]['old']:.1%}")
    title = f'Share of {finals} simulated finals that end with "better"'
    report(title, rows, as_json=arguments.json, notes=["Entrants are equal, except in the columns of power."])
    pool = list(trained(arguments.runs, steps))
    fits = [(seeds, top) for seeds in (2, 3, 5) for top in (1, 3) if seeds * (top + 1) <= len(pool)]
    rows = [real_row(pool, seeds, top, finals) for seeds, top in fits]
    spread = np.std([each.documents.value for each in pool], ddof=1)
    notes = [f"{len(pool)} runs, {steps} steps. Standard deviation between seeds: {spread:.4f} bits per byte."]
    report(f"The same with {ARCHITECTURE} as all entrants", rows, as_json=arguments.json, notes=notes)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
