"""How much of an exact Pareto front strategies find: NAS-Bench-Macro, FLOPs and error; ours and Optuna's.

    python -m benchmarks.quality_macro [--seeds 20] [--json]

The table has all 6,561 architectures, which are words of eight letters (https://arxiv.org/abs/2103.11922), so the exact
front is known. The figure is the hypervolume after 100, 200 and 500 evaluations relative to that of the exact front:
mean and standard error over the seeds. Both objectives are scaled to the range of the table, and the reference point is
its worst corner. Ours never evaluate an architecture twice, as in a search; in Optuna's own loop a repeated point is an
evaluation.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from benchmarks.support.report import report, skip
from nas import pareto
from nas.strategies.contract import Result
from nas.strategies.registry import make
from searchspace.tree import Choice

BUDGETS = (100, 200, 500)
LETTERS = "012"
OURS = ("random", "aging_evolution", "nsga2")
OPTUNAS = ("RandomSampler", "NSGAIISampler", "TPESampler")
LAYER = Choice(tuple(LETTERS))
Values = tuple[float, float]


@dataclass(frozen=True)
class Word:
    """An architecture of the table. Its letters are its hash."""

    hash: str


@dataclass(frozen=True)
class WordPoint:
    choices: dict[str, str]
    architecture: Word


class WordSpace:
    """All words of eight letters, with the interface of a space."""

    def realise(self, choose: Callable[[str, Any], Any]) -> WordPoint:
        return self._point("".join(choose(f"layer{index}", LAYER) for index in range(8)))

    def sample(self, rng: random.Random, by: Literal["choices", "architectures"] = "choices") -> WordPoint:
        return self.realise(lambda path, hole: rng.choice(LETTERS))

    def mutate(self, point: WordPoint, rng: random.Random) -> WordPoint:
        word, index = point.architecture.hash, rng.randrange(8)
        letter = rng.choice([letter for letter in LETTERS if letter != word[index]])
        return self._point(word[:index] + letter + word[index + 1 :])

    def crossover(self, a: WordPoint, b: WordPoint, rng: random.Random) -> WordPoint:
        return self._point("".join(rng.choice(pair) for pair in zip(a.architecture.hash, b.architecture.hash)))

    @staticmethod
    def _point(word: str) -> WordPoint:
        return WordPoint({f"layer{index}": letter for index, letter in enumerate(word)}, Word(word))


def read_table() -> dict[str, Values]:
    """(FLOPs, error) of every word, each scaled to 0..1 over the table."""
    folder = Path(os.environ.get("NAS_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "nas-bench-macro" / "nas-bench-macro_cifar10.json.gz"
    if not path.exists():
        skip(f"NAS-Bench-Macro is not at {path}; set NAS_DATA to the folder that holds nas-bench-macro/.")
    with gzip.open(path, "rt") as file:
        raw = {word: (row["flops"], 100 - row["mean_acc"]) for word, row in json.load(file).items()}
    lows = [min(column) for column in zip(*raw.values())]
    spans = [max(column) - low for column, low in zip(zip(*raw.values()), lows)]
    return {
        word: tuple((value - low) / span for value, low, span in zip(row, lows, spans)) for word, row in raw.items()
    }


def ours(name: str, seed: int, table: dict[str, Values], **options: Any) -> Iterator[Values]:
    """The values in the order in which our strategy `name` proposes them, each only once."""
    strategy = make(name, WordSpace(), seed, 2, **options)
    seen: set[str] = set()
    for number in range(BUDGETS[-1]):
        attempt = 0
        while (proposal := strategy.ask(number, 1, attempt)[0]).point.architecture.hash in seen:
            attempt += 1
        word = proposal.point.architecture.hash
        seen.add(word)
        strategy.tell(Result(number, 0, 1, proposal.point, table[word]))
        yield table[word]


def optunas(name: str, seed: int, table: dict[str, Values]) -> Iterator[Values]:
    """The same for one of Optuna's samplers, in Optuna's own loop."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["minimize"] * 2, sampler=getattr(optuna.samplers, name)(seed=seed))
    for _ in range(BUDGETS[-1]):
        trial = study.ask()
        word = "".join(trial.suggest_categorical(f"layer{index}", list(LETTERS)) for index in range(8))
        study.tell(trial, table[word])
        yield table[word]


def relative_hypervolumes(evaluations: Iterator[Values], whole: float) -> list[float]:
    """One figure for each budget."""
    values = list(evaluations)
    return [pareto.hypervolume(values[:budget], (1.0, 1.0)) / whole for budget in BUDGETS]


def measure(seeds: int) -> list[dict[str, Any]]:
    table = read_table()
    whole = pareto.hypervolume(list(table.values()), (1.0, 1.0))
    rows = []
    arms = [("tessera", ours, name) for name in OURS] + [("optuna", optunas, name) for name in OPTUNAS]
    for system, run, name in arms:
        runs = [relative_hypervolumes(run(name, seed, table), whole) for seed in range(seeds)]
        row: dict[str, Any] = {"system": system, "strategy": name}
        for budget, figures in zip(BUDGETS, zip(*runs)):
            row[f"at {budget}"] = round(fmean(figures), 4)
            row[f"± {budget}"] = round(stdev(figures) / seeds**0.5, 4)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="number of runs of each strategy; at least 2")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report(
        f"NAS-Bench-Macro: hypervolume relative to the exact front, {arguments.seeds} seeds, mean and standard error",
        measure(max(arguments.seeds, 2)),
        as_json=arguments.json,
    )


if __name__ == "__main__":
    main()
