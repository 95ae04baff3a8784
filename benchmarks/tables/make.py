"""Train random architectures of a search file's space, and store the results of each after several numbers of steps.

    python -m benchmarks.tables.make [FILE] --count 600 --again 100 --to rows.jsonl [--processes N] [--seconds S]

Architecture number i depends on the seed and i only. Each is trained with the file's task and recipe; the first
`--again` of them also with a second seed. A row is written when its training ends, and the same command trains what is
missing, on any number of machines (concatenate their files). `benchmarks.tables.table` packs and reads the rows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from nas import tasks
from nas.config import searchfile
from nas.config.parts import parts
from nas.location import CACHE
from nas.training.determinism import deterministic, set_seed
from nas.training.loop import Deadline, NotFinite, Training
from nas.training.recipe import Recipe
from nas.training.unit import evaluate
from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from searchspace.space.space import Point, Space

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
STEPS = (15, 30, 60, 80, 120, 160, 200, 240)  # the last is the whole training; each is evaluated on held-out text
MEAN = 5  # steps; the training loss is stored as means over this many steps
EVALUATION = 32_768  # positions of held-out text
NEVER = Deadline(None)


@dataclass(frozen=True)
class Job:
    """One training: architecture number `index` with `seed` for weights and batches."""

    index: int
    seed: int
    architecture: str
    choices: dict[str, Any]


def points(space: Space, seed: int) -> Iterator[Point]:
    """Distinct random architectures of `space`, always the same for one seed."""
    rng, seen = random.Random(seed), set[str]()
    while True:
        point = space.sample(rng)
        if point.architecture.hash not in seen:
            seen.add(point.architecture.hash)
            yield point


def jobs(space: Space, count: int, again: int, seed: int) -> list[Job]:
    """`count` architectures with seed 0, and among them, evenly spread, the first `again` with seed 1."""
    drawn = [point for point, _ in zip(points(space, seed), range(count), strict=False)]
    first = [Job(index, 0, point.architecture.text(), dict(point.choices)) for index, point in enumerate(drawn)]
    second = [Job(each.index, 1, each.architecture, each.choices) for each in first[:again]]
    return sorted(first + second, key=lambda job: (job.index * (count / max(1, again) if job.seed else 1), job.seed))


def trained(job: Job, file: str, device: str) -> dict[str, Any]:
    """One row: training loss and held-out metric by step, or that the loss was not finite."""
    config = searchfile.load(file)
    task = tasks.load_prepared({config.task.name: config.task.options | {"evaluation": EVALUATION}}, None, CACHE)
    architecture, place = Architecture.parse(job.architecture), torch.device(device)
    row: dict[str, Any] = {"index": job.index, "seed": job.seed, "choices": job.choices, "device": device}
    began = time.monotonic()
    with deterministic(1, place):
        set_seed(job.seed, place)
        recipe = Recipe.read(config.recipe)
        training = Training(build(architecture).to(place), task, recipe, STEPS[-1], job.seed, place)
        try:
            row |= _curves(training)
        except NotFinite:
            row["failure"] = "not finite"
    return row | {"seconds": round(time.monotonic() - began, 2)}


def _curves(training: Training) -> dict[str, list[float]]:
    losses, held_out = [], []
    for steps in STEPS:
        losses += [loss for _, loss in training.run(steps, NEVER)]
        held_out.append(round(evaluate(training, "validation", NEVER).metrics["bits_per_byte"], 5))
    means = [sum(losses[start : start + MEAN]) / MEAN for start in range(0, len(losses), MEAN)]
    return {"losses": [round(mean, 4) for mean in means], "bits_per_byte": held_out}


def missing(wanted: list[Job], file: Path) -> Iterator[Job]:
    """The jobs that have no row in `file`."""
    known = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    done = {(row["index"], row["seed"]) for row in known}
    return (job for job in wanted if (job.index, job.seed) not in done)


def rows(left: Iterator[Job], processes: int, seconds: float, file: str, device: str) -> Iterator[dict[str, Any]]:
    """Train `left` in as many processes at once, and give each row when it is ready; start none after `seconds`."""
    end = time.monotonic() + seconds
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(trained, job, file, device) for job in islice(left, processes)}
        while running:
            ended = next(as_completed(running))
            running.remove(ended)
            if time.monotonic() < end and (job := next(left, None)) is not None:
                running.add(pool.submit(trained, job, file, device))
            yield ended.result()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=str(QUICKSTART), help="a search file")
    parser.add_argument("--count", type=int, default=600, help="architectures")
    parser.add_argument("--again", type=int, default=100, help="how many of them to train with a second seed too")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the draw")
    parser.add_argument("--to", type=Path, required=True, help="a file of JSON lines; continued if it exists")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no training after this time")
    options = parser.parse_args(arguments)
    config = searchfile.load(options.file)
    wanted = jobs(parts(config).space, options.count, options.again, options.seed)
    _ = parts(config).prepared_task  # prepared once, before the processes start
    options.to.parent.mkdir(parents=True, exist_ok=True)
    left = missing(wanted, options.to)
    with options.to.open("a", encoding="utf-8") as file:
        for row in rows(left, options.processes, options.seconds, options.file, options.device):
            file.write(json.dumps(row) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
