"""Replays of tuning strategies, kept in a file with one line each, so that a killed benchmark can continue."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.report import skip
from tuner.replay.recorded import Recorded, limited, load
from tuner.replay.replay import Make, Run, replay, settle
from tuner.search.transfer import OtherDevice, hints
from tuner.strategies import STRATEGIES
from tuner.strategies.contract import Hints
from tuner.strategies.surrogate import Settings, Surrogate

MODES = ("cold", "warm", "noisy", "failing")
NEAR = 0.95  # fraction of the optimum that counts as near it


@dataclass(frozen=True)
class Job:
    """One run. mode: `warm` starts from the times on other devices, means of recorded samples drawn at random; in
    `noisy` a measurement is one sample; in `failing` the share `invalid` of the configurations fails. settings: of the
    surrogate; empty for its defaults."""

    mode: str
    strategy: str
    space: str
    seed: int
    evaluations: int
    settings: tuple[tuple[str, float], ...] = ()
    invalid: float = 0.0


@dataclass(frozen=True)
class Result:
    """The result of a run.

    steps: (evaluation, fraction of the optimum) at every improvement. milliseconds, longest: the mean and the longest
    time of a proposal. served: the time of the final choice relative to the optimum; regret: relative to the best
    measured one.
    """

    job: Job
    steps: tuple[tuple[int, float], ...]
    milliseconds: float
    longest: float
    served: float | None = None
    regret: float | None = None

    def fraction(self, evaluations: int) -> float:
        """The fraction of the optimum after `evaluations`; 0 if nothing valid was found."""
        return max((fraction for at, fraction in self.steps if at <= evaluations), default=0.0)

    def near(self) -> float:
        """Evaluations until `NEAR` the optimum; infinite if it was not reached."""
        return min((at for at, fraction in self.steps if fraction >= NEAR), default=float("inf"))


@lru_cache(maxsize=1)
def spaces() -> dict[str, Recorded]:
    """The recorded spaces by name. Without any, the program ends with a message."""
    folder = Path(os.environ.get("NAS_DATA", "../shared/data")) / "kernel_tuning"
    files = sorted(folder.glob("*.json.gz"))
    if not files:
        skip(f"there are no recorded tuning spaces in {folder}; set NAS_DATA to the folder that holds kernel_tuning")
    return {recorded.name: recorded for recorded in map(load, files)}


class Results:
    """The file of results. Lines of other versions of the strategies stay in it and are not used."""

    def __init__(self, path: Path, version: Callable[[Job], str]) -> None:
        self.path, self.version = path, version
        self.known: dict[Job, Result] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                data = json.loads(line)
            except ValueError:  # a line that a killed process cut short
                continue
            written = data.pop("version")
            result = _result(data)
            if written == version(result.job):
                self.known[result.job] = result

    def add(self, result: Result) -> None:
        """Add a result, and write it to the file at once."""
        with self.path.open("a") as file:
            file.write(json.dumps({"version": self.version(result.job), **asdict(result)}) + "\n")
        self.known[result.job] = result


def _result(data: dict[str, Any]) -> Result:
    job = data.pop("job")
    settings = tuple((name, value) for name, value in job.pop("settings"))
    steps = tuple((at, fraction) for at, fraction in data.pop("steps"))
    return Result(Job(**job, settings=settings), steps, **data)


def version(job: Job) -> str:
    """A hash of the code that decides the proposals of a run, without its docstrings."""
    return _version(job.strategy, job.mode == "warm")


@lru_cache
def _version(strategy: str, warm: bool) -> str:
    parts = ["tuner.space", "tuner.strategies.contract", STRATEGIES.find(strategy).__module__]
    if strategy == "surrogate":
        parts += ["tuner.strategies._gaussian_process", "tuner.strategies._feasibility"]
        parts += ["tuner.search.transfer", "tuner.strategies._warm"] if warm else []
    found = hashlib.sha256()
    for part in parts:
        tree = ast.parse(inspect.getsource(importlib.import_module(part)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        found.update(ast.dump(tree).encode())
    return found.hexdigest()[:12]


def complete(results: Results, jobs: Sequence[Job], processes: int) -> Iterator[Result]:
    """Run the jobs that have no result, in their order, and write each result; yields the new results."""
    missing = [job for job in jobs if job not in results.known]
    if processes == 1:
        found: Iterable[Result] = map(run, missing)
        for result in found:
            results.add(result)
            yield result
        return
    spaces()  # once, for all processes
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for result in pool.imap(run, missing):
            results.add(result)
            yield result


def run(job: Job) -> Result:
    """Replay a job."""
    recorded = spaces()[job.space]
    if job.invalid:
        recorded = limited(recorded, job.invalid, job.seed)
    given = _hints(job) if job.mode == "warm" else None
    strategy: str | Make = job.strategy
    if job.settings:
        strategy = type("Set", (Surrogate,), {"settings": Settings(**dict(job.settings))})  # type: ignore[arg-type]
    done = replay(recorded, strategy, job.evaluations, job.seed, noisy=job.mode == "noisy", hints=given)
    served = settle(recorded, done, job.seed) if job.mode == "noisy" else None
    return result_of(
        job,
        recorded,
        done,
        served=None if served is None else float(recorded.times[served]) / recorded.best,
        regret=None if served is None else float(recorded.times[served]) / float(done.best()[-1]),
    )


def result_of(
    job: Job, recorded: Recorded, done: Run, served: float | None = None, regret: float | None = None
) -> Result:
    fractions = recorded.best / done.best()
    rises = np.flatnonzero(np.diff(fractions, prepend=0.0) > 0)
    steps = tuple((int(at) + 1, float(fractions[at])) for at in rises)
    return Result(job, steps, 1e3 * done.seconds, 1e3 * done.longest, served, regret)


def _hints(job: Job) -> Hints | None:
    """The hints from the same kernel on every other device."""
    rng = np.random.default_rng([job.seed, 3])
    return hints(
        spaces()[job.space].space,
        [
            OtherDevice(other.space, _drawn(other, rng), np.ones(len(other.space), dtype=bool))
            for name, other in spaces().items()
            if name != job.space and kernel(name) == kernel(job.space)
        ],
    )


def _drawn(recorded: Recorded, rng: np.random.Generator) -> np.ndarray:
    """The mean of as many samples of every configuration as were recorded, drawn with replacement; [N]."""
    drawn = rng.integers(recorded.samples.shape[1], size=recorded.samples.shape)
    return np.take_along_axis(recorded.samples, drawn, axis=1).mean(1)


def kernel(space: str) -> str:
    """The kernel of a space."""
    return space.partition("_")[0]


def device(space: str) -> str:
    """The device of a space."""
    return space.partition("_")[2]
