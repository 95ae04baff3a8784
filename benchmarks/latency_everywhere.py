"""Does every architecture have a latency in every phase, or a reason why not?

    python -m benchmarks.latency_everywhere [--count 500] [--phase all] [--seed 0] [--json]

For each phase, `--count` random architectures of the three `everything` spaces and every tiny model of the zoo, each at
one of four lengths and two batch sizes. Pieces are timed once each and models run once, so the times mean nothing; the
row counts what happened. "sum": all pieces ran. "whole": it is not a sum of pieces, and ran as a whole. "no value":
it does not have the phase, or cannot read that far. Everything else is an error and is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from benchmarks.support.report import report
from benchmarks.support.spaces import EVERYTHING, loaded
from nas.latency import chain, measured, predicted, runs
from nas.latency.measured import latency
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import Predictor
from nas.latency.runs import PHASES, Setting, impossible
from nas.latency.table import Table
from searchspace import zoo
from searchspace.model.architecture import Architecture

LENGTHS, BATCHES = (1, 7, 64, 512), (1, 4)
ONCE: tuple[tuple[Any, str, Any], ...] = (  # settings that make every timing a single call
    (chain, "BUILDS", 1),
    (chain, "WARMUP", 0),
    (chain, "ROUNDS", 1),
    (predicted, "PIECES_SECONDS", 0.0),
    (runs, "WARM", {}),
    (measured, "GAUGE_SECONDS", 0.0),
)


def architectures(seed: int) -> Iterator[tuple[str, Architecture]]:
    """(a name, an architecture): the tiny zoo, then random ones of the spaces in turns."""
    for name in zoo.names():
        if "tiny" in zoo.sizes(name):
            yield f"{name}:tiny", zoo.load(name, "tiny")
    spaces = {name: loaded(name) for name in EVERYTHING}
    number = 0
    while True:
        for name, space in spaces.items():
            yield f"{name}/{number}", space.sample(random.Random(f"{seed}/{name}/{number}")).architecture
        number += 1


def outcome(architecture: Architecture, setting: Setting) -> str:
    """What happens in `setting`: "sum", "whole" or "no value". Any exception is a fault."""
    if impossible(architecture.configured, setting):
        return "no value"
    try:
        Predictor(Table(), setting).sum(architecture)
        found = "sum"
    except CannotCompose:
        found = "whole"
    latency(architecture.configured, setting, repeats=1, warmup=0, budget_seconds=0.0)
    return found


def run(phase: str, count: int, seed: int) -> dict[str, Any]:
    """One row: the number of each outcome."""
    found: Counter[str] = Counter()
    for name, architecture in islice(architectures(seed), count):
        rng = random.Random(f"{seed}/{name}/{phase}")
        setting = Setting(phase=phase, length=rng.choice(LENGTHS), batch=rng.choice(BATCHES))
        try:
            found[outcome(architecture, setting)] += 1
        except Exception as error:
            found["errors"] += 1
            print(f"{name}, {setting}: {type(error).__name__}: {error}", file=sys.stderr)
    return {"phase": phase, **{each: found[each] for each in ("sum", "whole", "no value", "errors")}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Latencies of every kind of architecture in every phase.")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--phase", choices=(*PHASES, "all"), default="all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for where, name, value in ONCE:
        setattr(where, name, value)
    phases = PHASES if options.phase == "all" else (options.phase,)
    rows = [run(phase, options.count, options.seed) for phase in phases]
    report("Latencies of random architectures", rows, as_json=options.json, notes=["bar: 0 errors"])


if __name__ == "__main__":
    main()
