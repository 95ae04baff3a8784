"""Is a candidate better than a baseline? The difference of their runs, its interval, and a verdict in one word.

Runs are paired by seed and by held-out document. `nas.finals.spread` says what the interval allows for: other seeds,
other documents, and the choice of the candidate among several. All values are to be minimised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from nas.documents import Documents
from nas.finals.spread import spread
from nas.finals.verdict import Comparison, Word
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.finals.spread import Array

FEW = 10  # with fewer documents, their spread cannot be estimated
ROUNDING = 1e-3  # relative difference of a run's value from the mean over its documents


@dataclass(frozen=True)
class Runs:
    """The runs of one entrant at one length on test data, one entry a seed; `failed` counts runs without a value.

    values: to be minimised. documents: the same values by document, None if the task has none. They may have the other
    sign, as for a metric that is to be maximised.
    """

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    documents: tuple[Documents, ...] | None = None
    failed: int = 0


def compare(candidate: Runs, baseline: Runs, *, chosen_from: int = 1, confidence: float = 0.95) -> Comparison:
    """Compare a candidate with a baseline.

    chosen_from: how many finalists the candidate was chosen from on validation data; it moves the upper end only.

    The word is "better" if the whole interval is below zero, "worse" if it is above, else "no difference shown". A
    candidate with failed runs is never "better": the runs that finished may be its lucky ones. A seed that failed for
    one of the two is left out for both. If the baseline failed, this is reported and has no other effect.
    With fewer than 10 documents, or none, the interval covers other seeds on the same data. With two seeds or more and
    10 documents or more, it covers other seeds and other documents.

    Raises ValueError if the documents of the runs are not the same or do not give the runs' values.
    """
    found = paired(candidate, baseline)
    reasons = _failures(candidate.failed, baseline.failed)
    low, high, share = -math.inf, math.inf, math.nan
    difference = fmean(found.means) if found.seeds else _apart(candidate, baseline)
    if len(found.seeds) < 2:
        count = "one" if found.seeds else "none"
        reasons.insert(0, f"an interval needs two seeds that finished for both, but there is {count}")
    else:
        spreads = spread([found.plain if found.by_document is None else found.by_document], found.weights)
        low, high = (difference + end for end in spreads.interval(confidence, chosen_from))
        share = spreads.seed_share
        reasons += _few(found)
    word: Word = "better" if high < 0 else "worse" if low > 0 else "no difference shown"
    return Comparison(
        word="no difference shown" if word == "better" and candidate.failed else word,
        difference=_known(difference),
        low=_known(low),
        high=_known(high),
        confidence=confidence,
        runs=(len(candidate.values), len(baseline.values)),
        reason="; ".join(reasons),
        seeds=len(found.seeds),
        documents=0 if found.weights is None else len(found.weights),
        seed_share=_known(share),
        failed=(candidate.failed, baseline.failed),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Pairs:
    """Differences candidate - baseline of the S seeds that finished for both.

    means: by seed, [S]. by_document: by seed and document, [S, D], documents in the order of their names. weights: of
    the documents, [D]. Both are None if there are fewer than 10 documents. names: of all documents, also of few.
    """

    seeds: tuple[int, ...]
    means: tuple[float, ...]
    by_document: Array | None = None
    weights: Array | None = None
    names: tuple[str, ...] = ()

    @property
    def plain(self) -> Array:
        """The differences by seed, [S, 1]."""
        return np.array(self.means, dtype=np.float64)[:, None]


def paired(candidate: Runs, baseline: Runs) -> Pairs:
    """The differences of two entrants, seed by seed and document by document.

    Raises ValueError if the documents of the runs are not the same or do not give the runs' values.
    """
    seeds = tuple(sorted({*candidate.seeds} & {*baseline.seeds}))
    ours, theirs = _by_seed(candidate, seeds), _by_seed(baseline, seeds)
    means = tuple(one - other for one, other in zip(ours[0], theirs[0], strict=True))
    if not seeds or ours[1] is None or theirs[1] is None:
        return Pairs(seeds, means)
    names, weights, documents = _matrix([*ours[1], *theirs[1]], [*ours[0], *theirs[0]])
    if len(names) < FEW:
        return Pairs(seeds, means, names=names)
    return Pairs(seeds, means, documents[: len(seeds)] - documents[len(seeds) :], weights, names)


def _by_seed(runs: Runs, seeds: Sequence[int]) -> tuple[list[float], list[Documents] | None]:
    places = [runs.seeds.index(seed) for seed in seeds]
    documents = runs.documents
    return [runs.values[i] for i in places], None if documents is None else [documents[i] for i in places]


def _matrix(runs: Sequence[Documents], values: Sequence[float]) -> tuple[tuple[str, ...], Array, Array]:
    """Names and weights [D] of the documents in the order of their names, and their values in each run [R, D]."""
    order, sign = _order(runs[0]), _sign(runs, values)
    names, weights = tuple(runs[0].names[place] for place in order), runs[0].weights[order]
    rows = []
    for each in runs:
        order = _order(each)
        if tuple(each.names[place] for place in order) != names:
            different = sorted({*each.names} ^ {*names})[:3]
            raise ValueError(f"all runs need the same documents, but only some of the runs have {different}.")
        if not np.allclose(each.weights[order], weights, rtol=1e-6):
            raise ValueError("a document needs the same weight in all runs, as they are compared on the same data.")
        rows.append(sign * each.values[order])
    return names, weights, np.stack(rows)


def _order(documents: Documents) -> list[int]:
    return sorted(range(len(documents.names)), key=documents.names.__getitem__)


def _sign(runs: Sequence[Documents], values: Sequence[float]) -> float:
    """1, or -1 if the values of the runs have the other sign; a single value of 0 does not tell."""
    for sign in (1.0, -1.0):
        if all(_close(sign * each.value, value) for each, value in zip(runs, values, strict=True)):
            return sign
    pairs = zip(runs, values, strict=True)
    wrong = [(each.value, value) for each, value in pairs if not _close(abs(each.value), abs(value))]
    found, value = wrong[0] if wrong else (runs[0].value, values[0])
    raise ValueError(f"the documents of a run must give its value {value:.6g}, but they give {found:.6g}.")


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=1e-6)


def _apart(candidate: Runs, baseline: Runs) -> float:
    """The difference of the means of runs that no seed joins."""
    both = candidate.values and baseline.values
    return fmean(candidate.values) - fmean(baseline.values) if both else math.nan


def _failures(candidate: int, baseline: int) -> list[str]:
    said = [f"{plural(candidate, 'run')} of the candidate failed, so it cannot be called better"] if candidate else []
    return said + ([f"{plural(baseline, 'run')} of the baseline failed"] if baseline else [])


def _few(pairs: Pairs) -> list[str]:
    if pairs.weights is not None or not pairs.names:
        return []
    held_out = plural(len(pairs.names), "held-out document")
    return [f"{held_out}: too few to resample, so the interval covers other seeds but not other documents"]
