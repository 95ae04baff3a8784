"""A search that takes milliseconds: the results of its units are looked up, not trained."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.config import searchfile
from nas.config.schema import SearchConfig
from nas.engine import launch
from nas.runners.inline import InlineRunner
from nas.store import Store
from nas.work import Outcome, Progress, Work

SEARCH = """
study: tried
space: {space}
task: {task}
objectives: {objectives}
strategy: {strategy}
scheduler: {scheduler}
runner: {{inline: {{process: false}}}}
budget: {budget}
baselines: {baselines}
finals: {finals}
limits: {limits}
seed: {seed}
storage: sqlite:///{folder}/tried.db
checkpoints: null
"""
SPACE = """
  kind: decoder
  width: !choice [16, 24, 32, 40]
  vocabulary: 256
  body:
    repeat:
      times: !int [1, 4]
      of:
        - residual: {of: !choice [attention: {heads: !choice [1, 2]}, convolution: {kernel: !int [2, 9]}]}
        - residual: {of: {feed_forward: {expand: !int [1, 4]}}}
"""
DEFAULTS = {
    "space": SPACE,
    "task": "language_model",
    "objectives": "[loss, parameters]",
    "strategy": "random",
    "scheduler": "{full: {steps: 10}}",
    "budget": "{trials: 12}",
    "baselines": "[]",
    "finals": "{top: 0}",
    "limits": "{attempts: 3}",
    "seed": "0",
}


def looked_up(work: Work, progress: Callable[[Progress], None] | None = None) -> Outcome:
    """A unit whose loss follows from its architecture, its seed and its steps."""
    digest = hashlib.sha256(f"{work.architecture}/{work.seed}".encode()).digest()
    loss = 1 + int.from_bytes(digest[:4], "big") / 2**32 + 1 / work.steps
    metrics = {"loss": loss, "test/loss": loss + 0.01}
    return Outcome(trial=work.trial, rung=work.rung, seconds=1.0, metrics=metrics)


@pytest.fixture
def table() -> Callable[..., Outcome]:
    return looked_up


@pytest.fixture
def describe(tmp_path: Path) -> Callable[..., SearchConfig]:
    """`describe(strategy="nsga2", ...)`: the search of this file with some of its parts written otherwise."""

    def made(folder: Path = tmp_path, **changes: str) -> SearchConfig:
        return searchfile.parse(SEARCH.format(folder=folder, **(DEFAULTS | changes)))

    return made


@pytest.fixture
def search(table: Callable[..., Outcome]) -> Callable[..., launch.Result]:
    """`search(config)`: runs it in this process with looked-up results."""

    def run(config: SearchConfig, unit: Callable[..., Outcome] = table) -> launch.Result:
        return launch.search(config, quiet=True, runner=InlineRunner(unit))

    return run


@pytest.fixture
def record() -> Callable[[launch.Result], list[tuple[Any, ...]]]:
    """What a search did, in the order in which it was recorded."""

    def read(result: launch.Result) -> list[tuple[Any, ...]]:
        store: Store = result.store
        results = store.results_since(result.study.id)
        trials = {trial.number: trial for trial in store.trials(result.study.id)}
        store.close()
        return [
            (each.number, each.rung, each.architecture_hash, trials[each.number].operator, each.values)
            for each in results
        ]

    return read


@pytest.fixture
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Latencies are measured with one build and few rounds: for tests in which the times mean nothing."""
    from nas.latency import measured, predicted, runs, timing

    monkeypatch.setattr(measured, "BUILDS", 1)
    monkeypatch.setattr(timing, "MOST", 1)
    monkeypatch.setattr(timing, "GAUGE_SECONDS", 0.0)
    monkeypatch.setattr(runs, "WARM", {})
    changed = {"BUILDS": 1, "ROUNDS": 1, "SECONDS": 0.0, "PIECES_SECONDS": 0.0, "STEP_SECONDS": 0.0}
    for name, value in changed.items():
        monkeypatch.setattr(predicted, name, value)
