"""Models that are trained for a search: their values, each computed once and stored in a file.

A line of the file is the result of an architecture with a seed after a number of steps: bits per byte of held-out text,
or null if the training diverged. Searches that train the same model share the lines, and an interrupted experiment
continues from them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from benchmarks.tables.make import EVALUATION, NEVER, QUICKSTART
from nas import tasks
from nas.config import factory, searchfile
from nas.tasks.contract import Task
from nas.training.determinism import deterministic, set_seed
from nas.training.loop import NotFinite, Training
from nas.training.recipe import Recipe
from nas.training.unit import evaluate
from searchspace.model.build import build
from searchspace.space.point import Point
from searchspace.space.space import Space

SEARCHED, SCORED = 0, 1  # seeds of weights and batches: in a search, and for the score of the chosen model
SHORT = 8_192  # positions of held-out text in a search; the score reads `EVALUATION`
CPU = torch.device("cpu")
Key = tuple[str, int, int]  # hash of the architecture, seed, steps


@dataclass
class Trained:
    """Trains with the task and recipe of the search file `search`, up to the last of `rungs`. file: for the values."""

    file: Path
    rungs: tuple[int, ...]
    search: Path = QUICKSTART

    def __post_init__(self) -> None:
        self.config = searchfile.load(self.search)
        self._newest: tuple[str, int, Training] | None = None
        self._known: dict[Key, float | None] = {}
        if self.file.exists():
            for row in map(json.loads, self.file.read_text(encoding="utf-8").splitlines()):
                self._known[row["architecture"], row["seed"], row["steps"]] = row["bits_per_byte"]

    @cached_property
    def space(self) -> Space:
        return factory.space(self.config)

    @cached_property
    def tasks(self) -> dict[int, Task]:
        """The task for each seed: they differ only in the size of the held-out text."""
        name, options = self.config.task.name, self.config.task.options
        return {
            seed: tasks.load_prepared({name: options | {"evaluation": positions}}, None, factory.CACHE)
            for seed, positions in ((SEARCHED, SHORT), (SCORED, EVALUATION))
        }

    def value(self, point: Point, steps: int) -> float | None:
        """Bits per byte after `steps` steps in a search; None if the training diverged."""
        return self._value(point, SEARCHED, [rung for rung in self.rungs if rung <= steps])

    def score(self, point: Point) -> float | None:
        """Bits per byte after the whole training with another seed, on more text."""
        return self._value(point, SCORED, [self.rungs[-1]])

    def _value(self, point: Point, seed: int, rungs: list[int]) -> float | None:
        """The value after the last of `rungs`; those before it are stored too, because another search may need them."""
        key = point.architecture.hash, seed, rungs[-1]
        if key not in self._known:
            with deterministic(1, CPU):
                self._train(point, seed, rungs)
        return self._known[key]

    def _train(self, point: Point, seed: int, rungs: list[int]) -> None:
        training = self._begun(point, seed)
        for steps in (rung for rung in rungs if rung > training.step):
            try:
                training.run(steps, NEVER)
                value = round(evaluate(training, "validation", NEVER).metrics["bits_per_byte"], 5)
            except NotFinite:
                value = None
            if (point.architecture.hash, seed, steps) not in self._known:
                self._keep((point.architecture.hash, seed, steps), value)

    def _begun(self, point: Point, seed: int) -> Training:
        """The newest training if it is of the same model, else one from the beginning."""
        hash = point.architecture.hash
        if self._newest is None or self._newest[:2] != (hash, seed):
            set_seed(seed, CPU)
            model, recipe = build(point.architecture), Recipe.read(self.config.recipe)
            self._newest = hash, seed, Training(model, self.tasks[seed], recipe, self.rungs[-1], seed, CPU)
        return self._newest[2]

    def _keep(self, key: Key, value: float | None) -> None:
        self._known[key] = value
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            row = dict(zip(("architecture", "seed", "steps"), key, strict=True)) | {"bits_per_byte": value}
            file.write(json.dumps(row) + "\n")
