"""How soon a tuning strategy finds a fast kernel, on recorded GPU spaces.

Every strategy runs on every recorded space (`NAS_DATA`, folder `kernel_tuning`) with many seeds, as it would live (see
`tuner.replay`). `--warm` leaves one device out and starts from the records of the others; `--noisy` draws one recorded
sample a measurement.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.report import report, skip
from tuner.recorded import Recorded, load
from tuner.replay import Run, fraction_of_optimum, replay, score
from tuner.strategies import STRATEGIES
from tuner.transfer import Elsewhere, hints

BUDGETS = (25, 50, 100, 200, 400)
WARM_BUDGETS = (8, 16, 25, 50, 100)
BARS = {25: 0.80, 50: 0.90, 100: 0.95, 200: 0.985, 400: 0.995}


def spaces() -> dict[str, Recorded]:
    """The recorded spaces by name; ends with a message where there are none."""
    folder = Path(os.environ.get("NAS_DATA", "../shared/data")) / "kernel_tuning"
    files = sorted(folder.glob("*.json.gz"))
    if not files:
        skip(f"there are no recorded tuning spaces in {folder}; set NAS_DATA to the folder that holds kernel_tuning")
    return {recorded.name: recorded for recorded in map(load, files)}


def others(name: str, known: dict[str, Recorded]) -> list[Elsewhere]:
    """The same kernel on every other device."""
    kernel = name.partition("_")[0]
    return [
        Elsewhere(each.space, each.times, np.ones(len(each.space), dtype=bool))
        for other, each in known.items()
        if other != name and other.partition("_")[0] == kernel
    ]


def runs(recorded: Recorded, strategy: str, options: argparse.Namespace, known: dict[str, Recorded]) -> list[Run]:
    given = hints(recorded.space, others(recorded.name, known)) if options.warm else None
    most = max(WARM_BUDGETS if options.warm else BUDGETS)
    budget = min(most, options.most)
    return [
        replay(recorded, strategy, budget, seed, noisy=options.noisy, hints=given)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
    ]


def rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    known = spaces()
    budgets = [budget for budget in (WARM_BUDGETS if options.warm else BUDGETS) if budget <= options.most]
    jobs = [(name, strategy) for strategy in options.strategies for name in known]
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        done = dict(zip(jobs, pool.starmap(_job, [(name, strategy, options, budgets) for name, strategy in jobs])))
    for strategy in options.strategies:
        table = [done[name, strategy] for name in known]
        if options.each:
            yield from ({"strategy": strategy, "space": name, **row} for name, row in zip(known, table, strict=True))
        mean = {key: round(float(np.mean([row[key] for row in table])), 4) for key in table[0]}
        yield {"strategy": strategy, "space": "mean", **mean}


def _job(name: str, strategy: str, options: argparse.Namespace, budgets: list[int]) -> dict[str, float]:
    known = spaces()
    recorded = known[name]
    found = runs(recorded, strategy, options, known)
    row = {
        str(budget): round(float(np.mean([fraction_of_optimum(recorded, run, budget) for run in found])), 4)
        for budget in budgets
    }
    final = [float(recorded.times[run.chosen]) / recorded.best for run in found if run.chosen is not None]
    regret = [float(recorded.times[run.chosen]) / float(run.best()[-1]) for run in found if run.chosen is not None]
    return {
        **row,
        "score_100": round(score(recorded, found, 100)[0], 3) if 100 in budgets and len(found) > 1 else float("nan"),
        "chosen": round(float(np.mean(final)), 4),
        "regret": round(float(np.mean(regret)), 4),
        "ms_a_proposal": round(1e3 * float(np.mean([run.seconds for run in found])), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["surrogate", "random", "local_search", "evolution", "annealing"]
    parser.add_argument("--strategies", nargs="+", default=names)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=400, help="evaluations at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--warm", action="store_true", help="start from the other devices' records of the same kernel")
    parser.add_argument("--noisy", action="store_true", help="a measurement is one of the recorded samples")
    parser.add_argument("--each", action="store_true", help="a row for each space too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.strategies) - STRATEGIES.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(STRATEGIES)}")
    title = "Fraction of the optimum after so many evaluations" + (" (warm)" if options.warm else "")
    bars = ", ".join(f"{bar} after {budget}" for budget, bar in BARS.items())
    report(title, list(rows(options)), as_json=options.json, notes=() if options.warm else [f"Bars: {bars}."])


if __name__ == "__main__":
    main()
