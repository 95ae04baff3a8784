"""Predicted and measured latency of random architectures, made of all blocks for a kind of model.

    python -m benchmarks.latency [--count 200] [--phase all] [--length 64 512] [--file FILE] [--minutes 10]
                                 [--device cuda] [--space SPACE] [--check 24] [--seconds 12] [--seed 0] [--quick]
                                 [--json]

Architectures are drawn from `examples/spaces/everything.yaml` (up to 20 million parameters), or from the space in the
file SPACE, such as `everything_encoder_decoder.yaml`. Each is predicted from pieces, then built and measured as a
whole, on this CPU with one thread, or on a GPU. Phases and lengths take turns; a phase that no architecture of the
space has is left out. `--file` stores the results, one JSON line for each architecture: the same command continues
where it stopped, and `--count 0` prints the table of the stored results. Settings with fewer than 4 are left out of the
table, and named below it. "halting" counts the architectures with halting blocks; the median error of these alone
stands next to it.

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
from itertools import count, islice, product
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr

from benchmarks.support.report import report
from benchmarks.support.spaces import loaded
from kernels.dispatch.device import resolve
from nas.latency.calibration import CrossCheck
from nas.latency.measured import CannotRun, latency
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import Predictor
from nas.latency.runs import PHASES, Setting, impossible
from nas.latency.table import Table
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.parts import configured_below
from searchspace.space.space import Space

SPACE, CPU = "everything", "cpu"  # of rows without these fields
LENGTHS = (64, 512)
LEAST = 4  # architectures of a phase and length in the table
TRIES = 100  # if this many architectures in a row do not run in a phase, the phase is left out
ERROR, NINTH, CORRELATION, INSIDE, MILLISECONDS = 0.05, 0.12, 0.985, (0.92, 0.98), 50.0  # the bars

Row = Mapping[str, Any]


def drawn(name: str, phase: str, length: int, space: Space) -> Iterator[Architecture]:
    """Random architectures that run in this phase at this length; ends if `TRIES` in a row do not."""
    source, setting, tried = space.with_length(length), Setting(phase=phase, length=length), 0
    for number in count():
        found = source.sample(random.Random(f"{name}/{number}")).architecture
        tried = tried + 1 if impossible(found.configured, setting) else 0
        if not tried:
            yield found
        elif tried == TRIES:
            return


def found(predictor: Predictor, architecture: Architecture, seconds: float) -> dict[str, Any]:
    """The sum of the pieces and the measurement, or the reason why there are none."""
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
        "halting": any(each.type.name == "halting" for each in configured_below(architecture.configured)),
        "sum": total,
        "milliseconds": measured.milliseconds,
        "load": measured.load,
        "predicting": predicting,
        "measuring": time.process_time() - start,
    }


class Kept:
    """The rows of a space on a device so far, by (phase, length): those of the file, if there is one, and new ones."""

    def __init__(self, file: Path | None, seed: int, space: str = SPACE, device: str = CPU) -> None:
        self.file, self.of = file, {"seed": seed, "space": space, "device": device}
        self.rows: dict[tuple[str, int], list[Row]] = {}
        for line in file.read_text().splitlines() if file and file.exists() else []:
            row = {"space": SPACE, "device": CPU, **json.loads(line)}
            if self.of.items() <= row.items():
                self.rows.setdefault((row["phase"], row["length"]), []).append(row)

    def add(self, phase: str, length: int, row: Row) -> None:
        """Keep one row."""
        self.rows.setdefault((phase, length), []).append(row)
        if self.file is not None:
            with self.file.open("a") as out:
                print(json.dumps({"phase": phase, "length": length, **self.of, **row}), file=out)


def collect(kept: Kept, settings: Sequence[tuple[str, int]], space: Space, options: argparse.Namespace) -> None:
    """Add rows, the settings in turns, until each has `--count` or the time is up."""
    table, deadline = Table(device=options.device), time.monotonic() + 60 * options.minutes
    predictors = {
        (phase, length): Predictor(table, Setting(phase=phase, length=length, device=options.device, threads=1))
        for phase, length in settings
    }
    sources = {
        each: islice(drawn(str(options.seed), *each, space), len(kept.rows.get(each, ())), None) for each in settings
    }
    while waiting := [each for each in sources if len(kept.rows.get(each, ())) < options.count]:
        for each in waiting:
            if time.monotonic() > deadline:
                return
            if (architecture := next(sources[each], None)) is None:
                del sources[each]
                print(f"{each[0]} at length {each[1]}: no architecture of the space can run.", file=sys.stderr)
            else:
                kept.add(*each, found(predictors[each], architecture, options.seconds))
        if sources:
            print(f"{min(len(kept.rows[each]) for each in sources)} of {options.count}", file=sys.stderr)


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
    halting = [error for error, row in zip(errors, sums, strict=True) if row.get("halting")]
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
        "halting": len(halting),
        "their median error": statistics.median(halting) if halting else "",
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
    parser.add_argument("--device", default=CPU, help="cpu, cuda or cuda:1")
    parser.add_argument("--space", type=Path, help="a file; the default is examples/spaces/everything.yaml")
    parser.add_argument("--file", type=Path, help="stores the results, so that the command can continue later")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seconds", type=float, default=12.0, help="to measure one architecture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="6 of each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.count, options.check = 6, 4
    torch.set_num_threads(1)
    phases = PHASES if options.phase == "all" else (options.phase,)
    try:
        space = loaded(options.space or SPACE)
        if options.count:
            resolve(options.device)
    except (SpaceError, ValueError) as error:
        parser.error(str(error))
    settings = [*product(phases, options.length)]
    kept = Kept(options.file, options.seed, options.space.stem if options.space else SPACE, options.device)
    if options.count:
        collect(kept, settings, space, options)
    sums = {each: sum("sum" in row for row in kept.rows.get(each, ())) for each in settings}
    table = [judged(*each, kept.rows[each], options.check) for each in settings if sums[each] >= LEAST]
    few = [f"{phase} {length} ({sums[phase, length]})" for phase, length in settings if sums[phase, length] < LEAST]
    bars = (
        f"bars: median error <= {ERROR:.0%}, 9 in 10 within {NINTH:.0%}, rank correlation >= {CORRELATION}, "
        f"{INSIDE[0]:.0%} to {INSIDE[1]:.0%} inside the interval, <= {MILLISECONDS:.0f} ms to predict (the slowest)"
    )
    left_out = [f"left out, with fewer than {LEAST} architectures: {', '.join(few)}"] if few else []
    report("Latency, predicted and measured; batch 1", table, as_json=options.json, notes=[bars, *left_out])


if __name__ == "__main__":
    main()
