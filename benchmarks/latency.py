"""Predicted and measured latency of random architectures, made of all blocks of a language model.

    python -m benchmarks.latency [--count 200] [--phase prefill] [--length 64] [--seed 0] [--quick] [--json]

Architectures with up to 20 million parameters are drawn from `examples/spaces/everything.yaml`. Each is predicted from
pieces that are timed alone, then built and measured as a whole, on this CPU with one thread. The correction factor, and
the error that a search would report, come from `--check` other architectures. The bars are a median error of at most
5 % and a rank correlation of at least .98.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr

from benchmarks.support.report import report
from nas.latency.measured import PhaseLatency
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import CrossCheck, Predictor
from nas.latency.runs import PHASES, Setting, streams
from nas.latency.table import Table
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space

SPACE = Path(__file__).parent.parent / "examples" / "spaces" / "everything.yaml"
ERROR, CORRELATION = 0.05, 0.98  # the bars


@dataclass(frozen=True)
class Judged:
    """One architecture: predicted and measured latency, and the seconds that each took."""

    predicted: PhaseLatency
    measured: PhaseLatency
    predicting: float
    measuring: float

    @property
    def error(self) -> float:
        return abs(self.predicted.milliseconds / self.measured.milliseconds - 1)

    @property
    def is_inside(self) -> bool:
        """Whether the interval of the prediction contains the measurement."""
        return self.predicted.low <= self.measured.milliseconds <= self.predicted.high


def drawn(name: str, phase: str, length: int) -> Iterator[Architecture]:
    """Random architectures that have the phase."""
    space, number = Space.load(SPACE).with_length(length), 0
    while True:
        found = space.sample(random.Random(f"{name}/{number}")).architecture
        number += 1
        if phase != "decode" or streams(found.configured):
            yield found


def judge(predictor: Predictor, check: CrossCheck, architecture: Architecture) -> Judged:
    """Predict, then measure. Raises CannotCompose if the architecture is not a sum of pieces."""
    start = time.monotonic()
    predicted = predictor.predicted(architecture, check)
    between = time.monotonic()
    measured = predictor.measured(architecture)
    return Judged(predicted, measured, between - start, time.monotonic() - between)


def run(phase: str, count: int, checked: int, length: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """One row of the table, and notes."""
    predictor = Predictor(Table(), Setting(phase=phase, length=length, threads=1))
    others = drawn(f"check/{seed}", phase, length)
    check = predictor.check(next(others) for _ in range(checked))
    judged, refused, source = [], 0, drawn(str(seed), phase, length)
    while len(judged) < count:
        try:
            judged.append(judge(predictor, check, next(source)))
        except CannotCompose:
            refused += 1
        if len(judged) % 20 == 0:
            print(f"{phase}: {len(judged)} of {count}", file=sys.stderr)
    return _row(phase, judged, check, refused), [_worst(phase, judged)]


def _row(phase: str, judged: list[Judged], check: CrossCheck, refused: int) -> dict[str, Any]:
    errors = sorted(each.error for each in judged)
    pairs = [(each.predicted.milliseconds, each.measured.milliseconds) for each in judged]
    correlation = float(spearmanr(*zip(*pairs, strict=True)).statistic)
    error = statistics.median(errors)
    loads = [each.measured.load or 1.0 for each in judged]
    return {
        "phase": phase,
        "architectures": len(judged),
        "not sums": refused,
        "median error": error,
        "error of 9 in 10": errors[round(0.9 * (len(errors) - 1))],
        "rank correlation": correlation,
        "reached": error <= ERROR and correlation >= CORRELATION,
        "error as checked": check.error,
        "inside the interval": statistics.mean(each.is_inside for each in judged),
        "load": statistics.median(loads),
        "s to predict": statistics.mean(each.predicting for each in judged),
        "s to measure": statistics.mean(each.measuring for each in judged),
    }


def _worst(phase: str, judged: list[Judged]) -> str:
    worst = max(judged, key=lambda each: each.error)
    times = [each.measured.milliseconds for each in judged]
    return (
        f"{phase}: {min(times):.3g} to {max(times):.3g} ms measured; the worst prediction says "
        f"{worst.predicted.milliseconds:.3g} ms for {worst.measured.milliseconds:.3g} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicted against measured latency of random architectures.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--check", type=int, default=24, help="architectures that correct and check the predictor")
    parser.add_argument("--phase", choices=(*PHASES, "all"), default="prefill")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="10 of them")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    count, checked = (10, 6) if options.quick else (options.count, options.check)
    phases = PHASES if options.phase == "all" else (options.phase,)
    found = [run(phase, count, checked, options.length, options.seed) for phase in phases]
    bars = f"bars: median error <= {ERROR:.0%}, rank correlation >= {CORRELATION}; batch 1, length {options.length}"
    notes = [bars, *(note for _, some in found for note in some)]
    report("Latency, predicted and measured", [row for row, _ in found], as_json=options.json, notes=notes)


if __name__ == "__main__":
    main()
