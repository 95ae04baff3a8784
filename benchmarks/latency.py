"""Predicted and measured latency of random architectures, made of all blocks of a language model.

    python -m benchmarks.latency [--count 200] [--phase all] [--length 64 512] [--file FILE] [--minutes 10]
                                 [--space SPACE] [--check 24] [--seconds 12] [--seed 0] [--quick] [--json]

Architectures are drawn from `examples/spaces/everything.yaml` (up to 20 million parameters). Each is predicted from
pieces, then built and measured as a whole, on this CPU with one thread. Phases and lengths take turns. `--file` keeps
what was found, one JSON line an architecture: the same command goes on where it stopped, and `--count 0` prints the
table of what is there.

The correction factor and the interval of a prediction come from `--check` other architectures of the same phase and
length, drawn among those that were measured; the architecture itself is never one of them. The bars: median error at
most 5 %, 90 % within 12 %, rank correlation at least .985, 92 to 98 % inside the interval, and at most 50 ms for a
prediction whose pieces are known.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr

from benchmarks.support.report import report
from nas.latency.calibration import CrossCheck
from nas.latency.measured import CannotRun, latency
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import Predictor
from nas.latency.runs import PHASES, Setting, impossible
from nas.latency.table import Table
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space

SPACE = Path(__file__).parent.parent / "examples" / "spaces" / "everything.yaml"
LENGTHS = (64, 512)
ERROR, NINTH, CORRELATION, INSIDE, MILLISECONDS = 0.05, 0.12, 0.985, (0.92, 0.98), 50.0  # the bars

Row = Mapping[str, Any]


def drawn(name: str, phase: str, length: int, space: Path | None = None) -> Iterator[Architecture]:
    """Random architectures that run in this phase at this length."""
    source, number, setting = Space.load(space or SPACE).with_length(length), 0, Setting(phase=phase, length=length)
    while True:
        found = source.sample(random.Random(f"{name}/{number}")).architecture
        number += 1
        if not impossible(found.configured, setting):
            yield found


def found(predictor: Predictor, architecture: Architecture, seconds: float) -> dict[str, Any]:
    """The sum of the pieces and the measurement; or the reason why there is none."""
    try:
        predictor.sum(architecture)
        start = time.process_time()
        total = predictor.sum(architecture).milliseconds  # all pieces are known now
        predicting = 1e3 * (time.process_time() - start)
        start = time.process_time()
        quiet = predictor.table.quiet
        measured = latency(architecture.configured, predictor.setting, quiet=quiet, budget_seconds=seconds)
    except (CannotCompose, CannotRun) as error:
        return {"reason": str(error)}
    return {
        "sum": total,
        "milliseconds": measured.milliseconds,
        "load": measured.load,
        "predicting": predicting,
        "measuring": time.process_time() - start,
    }


class Kept:
    """The rows found so far, by (phase, length): those of the file, if there is one, and new ones."""

    def __init__(self, file: Path | None, seed: int) -> None:
        self.file, self.seed = file, seed
        self.rows: dict[tuple[str, int], list[Row]] = {}
        for line in file.read_text().splitlines() if file and file.exists() else []:
            row = json.loads(line)
            if row["seed"] == seed:
                self.rows.setdefault((row["phase"], row["length"]), []).append(row)

    def add(self, phase: str, length: int, row: Row) -> None:
        """Keep one row."""
        self.rows.setdefault((phase, length), []).append(row)
        if self.file is not None:
            with self.file.open("a") as out:
                print(json.dumps({"phase": phase, "length": length, "seed": self.seed, **row}), file=out)


def collect(kept: Kept, settings: Sequence[tuple[str, int]], options: argparse.Namespace) -> None:
    """Add rows, the settings in turns, until each has `--count` or the time is up."""
    table, deadline = Table(), time.monotonic() + 60 * options.minutes
    predictors = {each: Predictor(table, Setting(phase=each[0], length=each[1], threads=1)) for each in settings}
    sources = {each: drawn(str(options.seed), *each, options.space) for each in settings}
    for each in settings:
        for _ in kept.rows.get(each, ()):  # drawn before
            next(sources[each])
    while waiting := [each for each in settings if len(kept.rows.get(each, ())) < options.count]:
        for each in waiting:
            if time.monotonic() > deadline:
                return
            kept.add(*each, found(predictors[each], next(sources[each]), options.seconds))
        print(f"{min(len(kept.rows[each]) for each in settings)} of {options.count}", file=sys.stderr)


def judged(phase: str, length: int, rows: Sequence[Row], checked: int) -> dict[str, Any]:
    """One row of the table."""
    sums = [row for row in rows if "sum" in row]
    ratios = [row["milliseconds"] / row["sum"] for row in sums]
    errors, inside, predicted, stated = [], [], [], []
    for number, ratio in enumerate(ratios):
        others = ratios[:number] + ratios[number + 1 :]
        check = CrossCheck(tuple(random.Random(number).sample(others, min(checked, len(others)))))
        errors.append(abs(check.factor / ratio - 1))
        inside.append(check.factor / check.spread <= ratio <= check.factor * check.spread)
        predicted.append(check.factor * sums[number]["sum"])
        stated.append(check.spread - 1)
    errors.sort()
    correlation = float(spearmanr(predicted, [row["milliseconds"] for row in sums]).statistic)
    worst = {
        "median error": statistics.median(errors),
        "9 in 10 within": errors[round(0.9 * (len(errors) - 1))],
        "rank correlation": correlation,
        "inside the interval": statistics.fmean(inside),
        "ms to predict": max(row["predicting"] for row in sums),
    }
    return {
        "phase": phase,
        "length": length,
        "architectures": len(sums),
        "not sums": len(rows) - len(sums),
        **worst,
        "reached": reached(worst),
        "half width": statistics.median(stated),
        "load": statistics.median(row["load"] or 1.0 for row in sums),
        "s to measure": statistics.fmean(row["measuring"] for row in sums),
    }


def reached(row: Row) -> bool:
    """Whether a row of the table reaches all bars."""
    return (
        row["median error"] <= ERROR
        and row["9 in 10 within"] <= NINTH
        and row["rank correlation"] >= CORRELATION
        and INSIDE[0] <= row["inside the interval"] <= INSIDE[1]
        and row["ms to predict"] <= MILLISECONDS
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicted against measured latency of random architectures.")
    parser.add_argument("--count", type=int, default=200, help="architectures of each phase and length")
    parser.add_argument("--check", type=int, default=24, help="architectures that correct and check a prediction")
    parser.add_argument("--phase", choices=(*PHASES, "all"), default="all")
    parser.add_argument("--length", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--space", type=Path, help="a file; the default is examples/spaces/everything.yaml")
    parser.add_argument("--file", type=Path, help="keeps what was found, to go on later")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--seconds", type=float, default=12.0, help="to measure one architecture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="6 of each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.count, options.check = 6, 4
    torch.set_num_threads(1)
    phases = PHASES if options.phase == "all" else (options.phase,)
    settings, kept = [*product(phases, options.length)], Kept(options.file, options.seed)
    collect(kept, settings, options)
    enough = {each: rows for each, rows in kept.rows.items() if sum("sum" in row for row in rows) > 3}
    table = [judged(*each, enough[each], options.check) for each in settings if each in enough]
    bars = (
        f"bars: median error <= {ERROR:.0%}, 9 in 10 within {NINTH:.0%}, rank correlation >= {CORRELATION}, "
        f"{INSIDE[0]:.0%} to {INSIDE[1]:.0%} inside the interval, <= {MILLISECONDS:.0f} ms to predict (the slowest)"
    )
    report("Latency, predicted and measured; batch 1", table, as_json=options.json, notes=[bars])


if __name__ == "__main__":
    main()
