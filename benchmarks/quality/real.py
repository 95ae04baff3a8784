"""Real searches of the quickstart's space: what the recorded tables promise, with every architecture really trained.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.real [--arms model,nsga2,random] [--seeds 3] [--trials 27,81]
        [--device cpu] [--processes 1] [--folder build/real] [--report] [--json]

Each search is that of `examples/quickstart.yaml` with another strategy and seed, without baselines, control arm and
finals, on one worker. It runs for the first number of trials and then goes on to the next, as a larger budget does. The
score of a search is the hypervolume of its trials that were trained to the last rung (bits per byte, FLOPs), each
objective scaled to its range over all searches, relative to the hypervolume of all searches together. The studies stay
in `--folder`, so the same command continues an interrupted run. `--processes` searches run at once. `--report` trains
nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import nas
from benchmarks.quality.__main__ import point as interval
from benchmarks.support.report import report
from nas import pareto
from nas.config import searchfile
from nas.report import trials as reports

SEARCH = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
OBJECTIVES = ("bits_per_byte", "flops")
BEYOND = 1.1  # the reference point, in ranges of all values
Front = list[list[float]]


def search(arm: str, seed: int, trials: int, folder: Path, device: str) -> None:
    """Run one search to its budget, or on to a larger one, and write the values of its trials next to its database."""
    kept = folder / f"{arm}-{seed}-{trials}.json"
    if kept.exists():
        return
    changes = {
        "study": f"{arm}-{seed}",
        "strategy": arm,
        "seed": seed,
        "storage": str(folder / f"{arm}-{seed}.db"),
        "runner": "inline",
        "device": device,
        "baselines": [],
        "control": {},
        "finals": {},
        "budget.trials": trials,
    }
    config = searchfile.load(SEARCH, [f"{key}={json.dumps(value)}" for key, value in changes.items()])
    with nas.search(config, quiet=True) as result:
        finished = [trial for trial in reports.results(result.store, result.study) if trial.steps]
    longest = max(trial.steps or 0 for trial in finished)
    values = [[trial.values[name] for name in OBJECTIVES] for trial in finished if trial.steps == longest]
    kept.write_text(json.dumps({"values": values, "steps": sum(trial.steps or 0 for trial in finished)}))


def _all(options: argparse.Namespace) -> None:
    """All searches to all budgets, the first seeds first."""
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        asked = [
            pool.submit(_grown, arm, seed, options.trials, options.folder, options.device)
            for seed, arm in product(range(options.seeds), options.arms)
        ]
        for each in asked:
            each.result()


def _grown(arm: str, seed: int, budgets: Sequence[int], folder: Path, device: str) -> None:
    for trials in budgets:
        search(arm, seed, trials, folder, device)


def table(folder: Path, arms: Sequence[str], budgets: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each strategy and budget, over the seeds that have ended."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    every = np.array([values for kept in found.values() for values in kept["values"]])
    low, span = every.min(axis=0), np.ptp(every, axis=0)
    span[span == 0] = 1.0  # as of a single trial
    corner = [BEYOND] * len(OBJECTIVES)

    def volume(front: Any) -> float:
        return pareto.hypervolume(((np.array(front) - low) / span).tolist(), corner)

    rows = []
    for budget in budgets:
        for arm in arms:
            ended = [kept for name, kept in found.items() if name.startswith(f"{arm}-") and name.endswith(f"-{budget}")]
            if ended:
                rows.append({"strategy": arm, "trials": budget, "seeds": len(ended), **_scores(ended, volume, every)})
    return rows


def _scores(ended: list[dict[str, Any]], volume: Any, every: Any) -> dict[str, str]:
    columns = {
        "hypervolume": [volume(kept["values"]) / volume(every) for kept in ended],
        "best bits per byte": [min(values[0] for values in kept["values"]) for kept in ended],
        "steps trained": [kept["steps"] for kept in ended],
    }
    digits = {"hypervolume": 3, "best bits per byte": 3, "steps trained": 0}
    shown = {}
    for name, figures in columns.items():
        _, mean, half = interval(0, figures)
        shown[name] = f"{mean:,.{digits[name]}f} ± {half:,.{digits[name]}f}"
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=lambda text: text.split(","), default=["model", "nsga2", "random"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=lambda text: sorted(map(int, text.split(","))), default=[27, 81])
    parser.add_argument("--device", default="cpu", help="that trains, such as cuda")
    parser.add_argument("--processes", type=int, default=1, help="searches that run at once")
    parser.add_argument("--folder", type=Path, default=Path("build/real"))
    parser.add_argument("--report", action="store_true", help="print what is there and train nothing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.report:
        _all(options)
    rows = table(options.folder, options.arms, options.trials)
    report(f"real searches, {SEARCH.name}, mean and 95 % interval over the seeds", rows, as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
