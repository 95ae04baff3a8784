"""The cost of a trial without its training: `python -m benchmarks.overhead [--trials 1000] [--long 0] [--json]`.

A task that takes no time, a point of 25 choices, one objective, random search. Compared in one run, in milliseconds per
trial: ours inline on SQLite, in a child process and in that of the search, and on Ray; Optuna's random and TPE
samplers on its SQLite storage; Ray Tune with reused actors.

Also the CPU time of the scheduler `halving` alone: 16,000 results with two and with three objectives, each followed by
a request for a promotion. The values are uniformly random, or all on one Pareto front, or each widens one front.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import logging
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support.report import report
from nas.config import searchfile
from nas.engine import launch
from nas.runners._process import ProcessRunner
from nas.runners.inline import InlineRunner
from nas.schedulers import registry as schedulers
from nas.work import Outcome, Work

HALVING_RESULTS = 16_000
HALVING_OBJECTIVES = (2, 3)
HALVING_VALUES = ("uniform", "one front", "wider front")
HOLES = 25
LAYERS = 12
HEAD = """
study: {study}
space:
  kind: decoder
  width: !choice [64, 96, 128]
  vocabulary: 256
  body:
{layers}
task: language_model
objectives: [loss]
strategy: random
scheduler: {{full: {{steps: 1}}}}
runner: {runner}
budget: {{trials: {trials}}}
storage: sqlite:///{folder}/{study}.db
checkpoints: null
"""
LAYER = """
    - residual: {norm: !choice [layer_norm, rms_norm], of: {feed_forward: {expand: !int [1, 8]}}}"""


def free(work: Work, progress=None) -> Outcome:
    """A unit that takes no time. Its value follows from its architecture."""
    return Outcome(trial=work.trial, rung=work.rung, seconds=0.0, metrics={"loss": float(len(work.architecture))})


def ours(folder: Path, trials: int, runner: str) -> list[float]:
    """Seconds from the end of one trial to the end of the next."""
    name = runner.strip("{}").partition(":")[0]
    text = HEAD.format(
        study=f"{name}{trials}", layers=LAYER * LAYERS, runner=_written(runner), trials=trials, folder=folder
    )
    config = searchfile.parse(text)
    made = InlineRunner(free)
    if name == "inline":
        made = ProcessRunner(importlib.import_module("benchmarks.overhead").free)  # the child cannot import `__main__`
        made.submit(_warm_up(config))  # the child starts once per search; this is not a cost of a trial
        while not made.wait(5):
            pass
    elif name == "ray":
        from nas.runners._ray import RayRunner
        from nas.runners.ray import RayOptions

        made = RayRunner(RayOptions(**config.runner.options), run=free)
        for _ in range(8):  # workers start at their first use, once per cluster; this is not a cost of a trial
            made.submit(_warm_up(config))
        while made.wait(5):
            pass
    clock = Clock(made)
    launch.search(config, quiet=True, runner=clock)
    return clock.laps


def _written(runner: str) -> str:
    """The runner as a search file has it."""
    return "{inline: {process: false}}" if runner == "in_process" else runner


def _warm_up(config) -> Work:
    return Work(study="", trial=0, rung=0, architecture="", task={}, recipe={}, steps=1, horizon=1, seed=0)


class Clock:
    """A runner that records when each outcome arrives."""

    def __init__(self, runner) -> None:
        self._runner, self._last = runner, time.perf_counter()
        self.laps: list[float] = []
        self.workers, self.capacity = runner.workers, runner.capacity

    def wait(self, timeout: float) -> list[Outcome]:
        outcomes = self._runner.wait(timeout)
        now = time.perf_counter()
        if outcomes:
            self.laps += [(now - self._last) / len(outcomes)] * len(outcomes)
            self._last = now
        return outcomes

    def __getattr__(self, name: str):
        return getattr(self._runner, name)


def of_optuna(folder: Path, trials: int, sampler: str) -> list[float]:
    """The same for Optuna's own loop with its own storage."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = f"sqlite:///{folder}/optuna-{sampler}.db"
    study = optuna.create_study(storage=storage, sampler=getattr(optuna.samplers, sampler)(seed=0))
    laps, last = [], time.perf_counter()

    def objective(trial) -> float:
        return float(sum(trial.suggest_int(f"x{index}", 0, 7) for index in range(HOLES)))

    for _ in range(trials):
        study.optimize(objective, n_trials=1)
        laps.append(time.perf_counter() - last)
        last = time.perf_counter()
    return laps


def of_ray_tune(folder: Path, trials: int) -> list[float]:
    """The same for Ray Tune's random search with reused actors."""
    from ray import tune

    class Free(tune.Trainable):
        def setup(self, config) -> None: ...

        def step(self) -> dict:
            return {"cost": float(sum(self.config.values())), "done": True}

        def reset_config(self, new_config) -> bool:
            return True

        def save_checkpoint(self, folder) -> None: ...

        def load_checkpoint(self, checkpoint) -> None: ...

    began = time.perf_counter()
    tuner = tune.Tuner(
        tune.with_resources(Free, {"cpu": 1}),
        param_space={f"x{index}": tune.randint(0, 8) for index in range(HOLES)},
        tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=True, metric="cost", mode="min"),
        run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
    )
    tuner.fit()
    return [(time.perf_counter() - began) / trials] * trials


def values_of(kind: str, objectives: int, trials: int) -> list[tuple[float, ...]]:
    """The values of `trials` results: `uniform`, `one front`, or a `wider front` with each result."""
    generator = random.Random(objectives)
    if kind == "wider front":
        return [(float(number), *[-float(number)] * (objectives - 1)) for number in range(trials)]
    values = [tuple(generator.random() for _ in range(objectives)) for _ in range(trials)]
    return values if kind == "uniform" else [tuple(each / sum(row) for each in row) for row in values]


def of_halving(kind: str, objectives: int, trials: int) -> list[float]:
    """CPU seconds for each result reported to halving, including the request for a promotion after it."""
    results = values_of(kind, objectives, trials)
    scheduler = schedulers.make("halving", rungs=[1, 3, 9], factor=3, rank="pareto")
    laps = []
    for number, values in enumerate(results):
        began = time.process_time()
        scheduler.started(number, 0, 1)
        scheduler.tell(number, 0, values, 1)
        if promotion := scheduler.promotion():
            scheduler.started(promotion.number, promotion.rung, promotion.steps)
        laps.append(time.process_time() - began)
    return laps


def rows(trials: int, long: int) -> Iterator[dict]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        base = ours(folder, trials, "inline")
        yield _row("Tessera inline, SQLite", base, base, "5 ms")
        yield _row("  in the process of the search", ours(folder, trials, "in_process"), base, "5 ms")
        if long:
            laps = ours(folder, long, "inline")
            yield _row(f"  {long} trials, first thousand", laps[:1000], base, "")
            yield _row(f"  {long} trials, last thousand", laps[-1000:], laps[:1000], "1.5 x the first thousand")
        yield _row("Tessera on Ray, 2 workers", ours(folder, trials, "{ray: {workers: 2}}"), base, "20 ms")
        yield _row("Optuna RandomSampler, SQLite", of_optuna(folder, min(trials, 300), "RandomSampler"), base, "")
        yield _row("Optuna TPESampler, SQLite", of_optuna(folder, min(trials, 300), "TPESampler"), base, "")
        yield _row("Ray Tune, reused actors", of_ray_tune(folder, min(trials, 200)), base, "")
        for kind, objectives in itertools.product(HALVING_VALUES, HALVING_OBJECTIVES):
            name = f"telling {HALVING_RESULTS:,} results to halving, {objectives} objectives, {kind}"
            yield _row(name, of_halving(kind, objectives, HALVING_RESULTS), base, "0.2 ms")


def _row(name: str, laps: list[float], base: list[float], bar: str) -> dict:
    mean = sum(laps) / len(laps)
    ratio = round(mean / (sum(base) / len(base)), 2)
    return {"system": name, "trials": len(laps), "ms a trial": round(mean * 1000, 3), "ratio": ratio, "bar": bar}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--long", type=int, default=0, help="also this many trials in one study, e.g. 100000")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("ray").setLevel(logging.ERROR)
    report("overhead per trial", list(rows(arguments.trials, arguments.long)), as_json=arguments.json)


if __name__ == "__main__":
    main()
