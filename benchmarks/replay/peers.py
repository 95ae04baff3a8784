"""Kernel Tuner's strategies, each with its own defaults, installed into a separate virtual environment."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay.runs import Job, Result, Results, result_of, spaces
from tuner.replay.recorded import Recorded
from tuner.replay.replay import Run

PACKAGE = "kernel-tuner==1.5.0"
PREFIX = "kernel tuner: "
FOLDER = Path("build/kernel_tuner")
WORKER = Path(__file__).with_name("kernel_tuner_worker.py")
# The strategies for one objective that need no further packages; nsga2, for several objectives, takes minutes per run.
STRATEGIES = (
    "random_sample", "minimize", "basinhopping", "diff_evo", "genetic_algorithm", "greedy_mls", "ordered_greedy_mls",
    "greedy_ils", "dual_annealing", "mls", "pso", "simulated_annealing", "firefly_algorithm", "bayes_opt",
    "hybrid_vndx", "adaptive_tabu_greywolf",
)  # fmt: skip


def jobs(names: Sequence[str], seeds: Iterable[int], budgets: Sequence[int]) -> list[Job]:
    """One run for each budget, because some strategies plan by it."""
    return [
        Job("cold", PREFIX + name, space, seed, budget)
        for space in spaces()
        for seed in seeds
        for name in names or STRATEGIES
        for budget in budgets
    ]


def complete(results: Results, wanted: Sequence[Job]) -> Iterator[Result]:
    """Run the jobs that have no result and write each result; yields the new results."""
    missing = [job for job in wanted if job not in results.known]
    if not missing:
        return
    python = _installed()
    for space, some in groupby(missing, key=lambda job: job.space):
        recorded, asked = spaces()[space], list(some)
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache.json"
            cache.write_text(json.dumps(_simplified(recorded.name)))
            for job, answer in zip(asked, _answers(python, cache, asked), strict=False):
                if answer["error"] and not answer["order"]:
                    print(f"{job.strategy} on {space}: {answer['error']}", file=sys.stderr)
                result = result_of(job, recorded, _run(recorded, answer))
                results.add(result)
                yield result


def _answers(python: str | Path, cache: Path, asked: Sequence[Job]) -> Iterator[dict[str, Any]]:
    runs = [(job.strategy.removeprefix(PREFIX), job.seed, job.evaluations) for job in asked]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [python, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env=environment
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump({"cache": str(cache), "runs": runs}, process.stdin)
        process.stdin.close()
        yield from map(json.loads, process.stdout)
        if process.wait():
            said.seek(0)
            raise SystemExit(f"Kernel Tuner ended with {process.returncode}: {said.read()[-2000:]}")


def _run(recorded: Recorded, answer: dict[str, Any]) -> Run:
    order = answer["order"]
    times = recorded.times[order]
    return Run(tuple(order), times, times, None, answer["seconds"] / max(1, len(order)), 0.0)


def _simplified(name: str) -> dict[str, Any]:
    """The recorded file without its samples, which take seconds to read."""
    folder = Path(os.environ.get("NAS_DATA", "../shared/data")) / "kernel_tuning"
    with gzip.open(folder / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        data = json.load(file)
    names = data["tune_params_keys"]
    for key, record in data["cache"].items():
        data["cache"][key] = {each: record[each] for each in (*names, "time")}
        for stage in ("compile_time", "verification_time", "benchmark_time"):
            data["cache"][key][stage] = float(np.nan_to_num(record.get(stage) or 0.0))
    return {"device_name": name, "kernel_name": name, "problem_size": [1], "objective": "time", **{
        part: data[part] for part in ("tune_params_keys", "tune_params", "cache")
    }}  # fmt: skip


def _installed() -> str | Path:
    """The Python of the virtual environment. Raises SystemExit if the installation fails."""
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{PACKAGE} could not be installed: {done.stderr.strip().splitlines()[-1]}")
    return python
