"""How much of a prediction's error is noise? Each architecture is measured twice and predicted twice, in turns.

    python -m benchmarks.gpu.repeated_latency [--count 20] [--phase train] [--length 64 512] [--device cuda]
                                              [--file FILE] [--minutes 10] [--seconds 1.5] [--seed 0] [--json]

The pieces are timed again for the second prediction. "whole" and "sum": the median difference of the two measurements
and of the two sums of pieces. "error": the median error of one sum against one measurement, after a factor that all
share. "error of means": the same for the mean of both. A predictor without an error of its own would have an "error" of
about 0.7 times "whole". `--file` stores the rows; `--count 0` prints the table of the stored rows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.latency import LENGTHS, SPACE, drawn
from benchmarks.support.report import report
from benchmarks.support.spaces import loaded
from nas.latency.measured import CannotRun, latency
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import Predictor
from nas.latency.runs import PHASES, Setting
from nas.latency.table import Table
from searchspace.model.architecture import Architecture

Row = Mapping[str, Any]


def twice(architecture: Architecture, setting: Setting, quiet: float, seconds: float) -> dict[str, Any]:
    """Milliseconds of the model and of the sum of its pieces, two of each in turns. Raises CannotRun, CannotCompose."""
    found: dict[str, list[float]] = {"whole": [], "sum": []}
    for _ in range(2):
        found["whole"].append(
            latency(architecture.configured, setting, quiet=quiet, budget_seconds=seconds).milliseconds
        )
        found["sum"].append(Predictor(Table(device=setting.device), setting).sum(architecture).milliseconds)
    return found


def collected(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """New rows, the lengths in turns, until there are `--count` of each or the time is up."""
    deadline, quiet = time.monotonic() + 60 * options.minutes, Table(device=options.device).quiet
    space = loaded(SPACE)
    sources = {each: drawn(str(options.seed), options.phase, each, space) for each in options.length}
    for _ in islice(count(), options.count):
        for length, source in sources.items():
            if time.monotonic() > deadline:
                return
            setting = Setting(phase=options.phase, length=length, device=options.device, threads=1)
            try:
                found = twice(next(source), setting, quiet, options.seconds)
            except (CannotCompose, CannotRun):
                continue
            yield {"phase": options.phase, "length": length, "device": options.device, **found}


def judged(phase: str, length: int, rows: Sequence[Row]) -> dict[str, Any]:
    """One row of the table."""
    one = [math.log(whole / total) for row in rows for whole, total in zip(row["whole"], row["sum"], strict=True)]
    both = [math.log(sum(row["whole"]) / sum(row["sum"])) for row in rows]
    return {
        "phase": phase,
        "length": length,
        "architectures": len(rows),
        **{name: statistics.median(_apart(*row[name]) for row in rows) for name in ("whole", "sum")},
        "factor": math.exp(statistics.median(both)),
        "error": _spread(one),
        "error of means": _spread(both),
    }


def _apart(first: float, second: float) -> float:
    return abs(second / first - 1)


def _spread(logarithms: Sequence[float]) -> float:
    middle = statistics.median(logarithms)
    return statistics.median(abs(math.exp(each - middle) - 1) for each in logarithms)


def main() -> None:
    parser = argparse.ArgumentParser(description="How much of a prediction's error is noise?")
    parser.add_argument("--count", type=int, default=20, help="architectures of each length")
    parser.add_argument("--phase", choices=PHASES, default="train")
    parser.add_argument("--length", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--file", type=Path, help="stores the rows")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--seconds", type=float, default=1.5, help="to measure one architecture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    if options.file and options.file.exists():
        rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    for row in collected(options) if options.count else ():
        rows.append(row)
        if options.file:
            with options.file.open("a") as out:
                print(json.dumps(row), file=out)
    kept = {
        length: [r for r in rows if r["phase"] == options.phase and r["length"] == length] for length in options.length
    }
    table = [judged(options.phase, length, found) for length, found in kept.items() if found]
    report("Measured twice, predicted twice; batch 1", table, as_json=options.json)


if __name__ == "__main__":
    main()
