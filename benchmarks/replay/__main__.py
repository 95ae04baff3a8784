"""How fast a tuning strategy finds a fast kernel, on recorded GPU spaces.

Every strategy runs on every recorded space (`NAS_DATA`, folder `kernel_tuning`) with many seeds, as in a live session
(see `tuner.replay.replay`). `--mode warm` leaves one device out and starts from the records of the others. In `--mode
noisy` a measurement is one recorded sample, and the final choice is made as in a live session. In `--mode failing` a
resource limit makes the share `--invalid` of the configurations fail; the rule differs between seeds.
`--peers` runs Kernel Tuner's strategies. `--cross-validate` chooses settings without the spaces that they are evaluated
on. Runs are kept in `--results`, and the same command continues where it ended.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.replay import peers
from benchmarks.replay.runs import MODES, Job, Result, Results, complete, spaces, version
from benchmarks.replay.validation import validate
from benchmarks.support.report import report
from tuner.replay.replay import improvements
from tuner.strategies import STRATEGIES

BUDGETS = (8, 16, 25, 50, 100, 200, 400)
FIRST_BAR = 25  # Kernel Tuner's strategies have a run for each budget from here on
BARS = {
    "cold": "25 .80, 50 .90, 100 .95, 200 .985, 400 .995; 20 ms a proposal",
    "warm": "gemm: 8 .96, 16 .98; convolution and dedispersion above cold everywhere",
    "noisy": "served at most 1.02, regret at most 1.010",
    "failing": "25 .80, 50 .90, 100 .95, never below random at 8 and 16",
}
OURS = ["surrogate", "random", "local_search", "evolution", "annealing"]


def jobs(options: argparse.Namespace) -> list[Job]:
    """The jobs, seed by seed, so that an interrupted run has about the same number of seeds everywhere."""
    return [
        Job(options.mode, strategy, space, seed, options.most, invalid=options.invalid)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for strategy in options.strategies
        for space in spaces()
    ]


def rows(results: Iterable[Result], budgets: Sequence[int], each: bool) -> Iterator[dict[str, object]]:
    """For every strategy: its mean over the spaces, its worst space, and its score relative to random search."""
    table: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        table.setdefault(result.job.strategy, {}).setdefault(result.job.space, []).append(result)
    for strategy, by_space in table.items():
        fractions = {name: [_mean(runs, budget) for budget in budgets] for name, runs in by_space.items()}
        groups = {"mean": list(by_space)}
        if each:
            groups |= {kernel: [name for name in by_space if name.startswith(kernel)] for kernel in _kernels(by_space)}
            groups |= {name: [name] for name in by_space}
        for label, names in groups.items():
            values = np.mean([fractions[name] for name in names], axis=0)
            runs = [run for name in names for run in by_space[name]]
            yield _row(strategy, label, budgets, values, runs)
        yield _row(strategy, "worst space", budgets, np.min(list(fractions.values()), axis=0), [])
        if any(run.job.invalid for runs in by_space.values() for run in runs):
            continue  # a score is relative to random search on one space
        scores = {name: [_score(name, runs, budget) for budget in budgets] for name, runs in by_space.items()}
        means, errors = np.array(list(scores.values())).transpose(2, 0, 1)
        yield _row(strategy, "score", budgets, means.mean(0), [])
        yield _row(strategy, "... its error", budgets, np.sqrt((errors**2).sum(0)) / len(errors), [])


def _row(
    strategy: str, label: str, budgets: Sequence[int], values: np.ndarray, runs: Sequence[Result]
) -> dict[str, object]:
    row: dict[str, object] = {"strategy": strategy, "of": label, "runs": len(runs) or ""}
    row |= {str(budget): f"{value:.4f}" for budget, value in zip(budgets, values, strict=True)}
    row["to 5%"] = f"{np.median([run.near() for run in runs]):.0f}" if runs else ""
    row["ms"] = f"{np.mean([run.milliseconds for run in runs]):.2f}" if runs else ""
    row["longest ms"] = f"{max(run.longest for run in runs):.0f}" if runs else ""
    for name in ("served", "regret"):
        known = [value for run in runs if (value := getattr(run, name)) is not None]
        row[name] = f"{np.mean(known):.4f}" if known else ""
    return row


def _mean(runs: Sequence[Result], budget: int) -> float:
    return float(np.mean([run.fraction(budget) for run in _planned(runs, budget)]))


def _planned(runs: Sequence[Result], budget: int) -> list[Result]:
    """The runs with the smallest number of evaluations that is enough for `budget`: some strategies plan by it."""
    most = min((run.job.evaluations for run in runs if run.job.evaluations >= budget), default=None)
    return [run for run in runs if run.job.evaluations == most]


def _score(space: str, runs: Sequence[Result], budget: int) -> tuple[float, float]:
    recorded = spaces()[space]
    fractions = np.array([run.fraction(budget) for run in _planned(runs, budget)])
    found = improvements(recorded, recorded.best / fractions[fractions > 0], budget)
    error = float(found.std(ddof=1)) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
    return float(found.mean()) if len(found) else float("nan"), error


def _kernels(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.partition("_")[0] for name in names))


def _version(job: Job) -> str:
    return peers.PACKAGE if job.strategy.startswith(peers.PREFIX) else version(job)


def _missing(results: Results, wanted: Sequence[Job]) -> int:
    return sum(job not in results.known for job in wanted)


def _watch(new: Iterator[Result], missing: int, group: int, budgets: Sequence[int]) -> None:
    """Run all of `new`; after every `group` print the progress, and the result of the last strategy so far."""
    start, seen = time.monotonic(), list[Result]()
    for count, result in enumerate(new, 1):
        seen.append(result)
        if count % group == 0 or count == missing:
            left = (time.monotonic() - start) / count * (missing - count)
            same = [each for each in seen if each.job.strategy == result.job.strategy]
            means = " ".join(f"{b}: {np.mean([each.fraction(b) for each in same]):.3f}" for b in budgets)
            print(f"{count}/{missing} {result.job.strategy} {means}, {left / 60:.0f} min left", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=OURS, help=f"of {', '.join(STRATEGIES.names())}")
    parser.add_argument("--mode", choices=MODES, default="cold")
    parser.add_argument("--invalid", type=float, default=0.45, help="with --mode failing: the share that fails")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=400, help="evaluations of a run")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--peers", nargs="*", help="Kernel Tuner's strategies instead of ours; default: most")
    parser.add_argument("--cross-validate", action="store_true", help="choose settings on other kernels and devices")
    parser.add_argument("--results", type=Path, default=Path("build/replay.jsonl"), help="the file to keep runs in")
    parser.add_argument("--each", action="store_true", help="also print a row for each kernel and space")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.strategies) - set(STRATEGIES.names()):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(STRATEGIES.names())}")
    if options.mode != "failing":
        options.invalid = 0.0
    elif not 0 < options.invalid < 1:
        parser.error(f"--invalid must be between 0 and 1, but got {options.invalid}")
    budgets = [budget for budget in BUDGETS if budget <= options.most]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    results = Results(options.results, _version)
    if options.cross_validate:
        chosen = validate(results, seeds, options.most, options.processes)
        report("Settings chosen without the spaces that are left out", chosen, as_json=options.json)
        return
    if options.peers is not None:
        planned = [budget for budget in budgets if budget >= FIRST_BAR] or budgets
        wanted = peers.jobs(options.peers, seeds, planned)
        _watch(peers.complete(results, wanted), _missing(results, wanted), 100, [])
    else:
        wanted = jobs(options)
        _watch(complete(results, wanted, options.processes), _missing(results, wanted), len(spaces()), budgets)
    found = list(rows((results.known[job] for job in wanted if job in results.known), budgets, options.each))
    title = f"Fraction of the optimum by number of evaluations, {options.mode}"
    report(title, found, as_json=options.json, notes=[f"Bars, of the default: {BARS[options.mode]}."])


if __name__ == "__main__":
    main()
