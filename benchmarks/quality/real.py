"""Real searches of the quickstart's space: a check of the results on recorded tables, with every architecture trained.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.real [--arms model,nsga2,random] [--seeds 3] [--trials 27,81]
        [--device cpu] [--processes 1] [--file benchmarks/tables/real.json] [--folder build/real] [--report] [--json]

Each search is that of `examples/quickstart.yaml` with another strategy and seed, without baselines, control arm and
finals, on one worker. It runs for the first number of trials and then continues to the next, as with a larger budget.
The score of a search is the hypervolume of its trials that were trained to the last rung (bits per byte, FLOPs), each
objective scaled to its range over all searches, relative to the hypervolume of all searches together. `--file` stores
the searches that have ended, and the same command continues with the others; interrupted searches continue from their
studies in `--folder`. `--processes` searches run at once. `--report` trains nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import nas
from benchmarks.quality.__main__ import point as interval
from benchmarks.support.report import report
from nas import pareto
from nas.config import searchfile
from nas.files import write_whole
from nas.report import trials as reports

SEARCH = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
KEPT = Path(__file__).parents[1] / "tables" / "real.json"
OBJECTIVES = ("bits_per_byte", "flops")
BEYOND = 1.1  # the reference point, in ranges of all values
Front = list[list[float]]


class Kept:
    """The searches that have ended, by name, in a JSON file. All use the same text: the source of Python's library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.searches: dict[str, dict[str, Any]] = {}
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["python"] != platform.python_version():
                raise SystemExit(f"{path} is of Python {kept['python']}, which has other text: give another --file.")
            self.searches = kept["searches"]

    def add(self, name: str, found: dict[str, Any]) -> None:
        """Add a search, and write the file at once."""
        self.searches[name] = found
        lines = [f"  {json.dumps(key)}: {json.dumps(self.searches[key])}" for key in sorted(self.searches)]
        text = f'{{"python": "{platform.python_version()}", "searches": {{\n' + ",\n".join(lines) + "\n}}\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, text.encode())


def name_of(arm: str, seed: int, trials: int) -> str:
    return f"{arm}-{seed}-{trials}"


def search(arm: str, seed: int, trials: int, folder: Path, device: str) -> dict[str, Any]:
    """Run a search, or continue it to a larger budget -> the values of its longest trials, and the steps of all."""
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
    return {"values": values, "steps": sum(trial.steps or 0 for trial in finished)}


def run(kept: Kept, options: argparse.Namespace) -> None:
    """All searches that are missing, the first seeds first; each to all budgets, one after the other."""
    options.folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        for trials in options.trials:
            missing = [
                (arm, seed, trials)
                for seed, arm in product(range(options.seeds), options.arms)
                if name_of(arm, seed, trials) not in kept.searches
            ]
            asked = {pool.submit(search, *each, options.folder, options.device): each for each in missing}
            for ended in as_completed(asked):
                kept.add(name_of(*asked[ended]), ended.result())


def table(found: Mapping[str, Any], arms: Sequence[str], budgets: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each strategy and budget, over the seeds that have ended."""
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
    parser.add_argument("--device", default="cpu", help="the device for training, such as cuda")
    parser.add_argument("--processes", type=int, default=1, help="searches that run at once")
    parser.add_argument("--file", type=Path, default=KEPT, help="the searches that have ended")
    parser.add_argument("--folder", type=Path, default=Path("build/real"), help="the studies")
    parser.add_argument("--report", action="store_true", help="print the stored results and train nothing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    kept = Kept(options.file)
    if not options.report:
        run(kept, options)
    rows = table(kept.searches, options.arms, options.trials) if kept.searches else []
    report(f"real searches, {SEARCH.name}, mean and 95 % interval over the seeds", rows, as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
