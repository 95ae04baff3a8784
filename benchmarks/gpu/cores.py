"""How fast does each core of the processor launch work for the GPU, and does that change?

    python -m benchmarks.gpu.cores [--device cuda] [--seconds 110] [--file FILE] [--json]

In turns, all threads of this process are kept on one core, and the forward pass and the training step of a small
Transformer are timed there, .12 seconds each. The table has a row for each of the two. "quiet": the 10 % quantile of
its medians, in milliseconds. "slow": the share of medians above 1.2 times that. "times": how much longer the slow ones
take. "cores": the smallest and the largest share of slow medians of a core. "changes": how often a core was slow in one
round and not in the next, or the other way round. `--file` stores the rows; `--seconds 0` prints the table of the
stored rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy
import torch

from benchmarks.support.report import report
from tuner.device import resolve

SPAN, SLOW, QUIET = 0.12, 1.2, 0.1  # seconds for each median; times the quiet median; the quantile that is quiet

Row = Mapping[str, Any]


def calls(device: torch.device) -> dict[str, Callable[[], object]]:
    """What is timed on each core."""
    layers = [
        torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, device=device) for _ in range(4)
    ]
    model, x = torch.nn.Sequential(*layers), torch.randn(1, 64, 64, device=device)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def train() -> None:
        model(x).sum().backward()
        model.zero_grad()

    return {"forward": forward, "train": train}


def median_time(call: Callable[[], object], device: torch.device) -> float:
    """Milliseconds, the median of `SPAN` seconds."""
    call()
    times, end = [], time.perf_counter() + SPAN
    while (start := time.perf_counter()) < end:
        call()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def collected(device: torch.device, seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each round, core and call, until the time is up."""
    timed, deadline = calls(device), time.monotonic() + seconds
    cores = sorted(os.sched_getaffinity(0))
    for number in count():
        for core in random.Random(number).sample(cores, len(cores)):
            if time.monotonic() > deadline:
                return
            for thread in Path("/proc/self/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})
            for name, call in timed.items():
                yield {"round": number, "core": core, "call": name, "milliseconds": median_time(call, device)}


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A row for each call."""
    found = []
    for name in dict.fromkeys(row["call"] for row in rows):
        times = {(row["core"], row["round"]): row["milliseconds"] for row in rows if row["call"] == name}
        quiet = float(numpy.quantile(list(times.values()), QUIET))
        slow = {where: each > SLOW * quiet for where, each in times.items()}
        slow_times = [each for where, each in times.items() if slow[where]]
        cores = [[slow[where] for where in sorted(slow) if where[0] == core] for core in sorted({c for c, _ in slow})]
        shares = [statistics.mean(each) for each in cores]
        changes = [one != next_one for each in cores for one, next_one in pairwise(each)]
        found.append(
            {
                "call": name,
                "medians": len(times),
                "quiet": quiet,
                "slow": len(slow_times) / len(times),
                "times": statistics.median(slow_times) / quiet if slow_times else 1.0,
                "cores": f"{min(shares):.2f} to {max(shares):.2f}",
                "changes": statistics.mean(changes) if changes else None,
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cpu, cuda or cuda:1")
    parser.add_argument("--seconds", type=float, default=110.0)
    parser.add_argument("--file", type=Path, default=os.devnull, help="stores the rows")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in options.file.read_text().splitlines()] if options.file.exists() else []
    with options.file.open("a") as file:
        for row in collected(resolve(options.device), options.seconds) if options.seconds else ():
            print(json.dumps(row), file=file)
            rows.append(row)
    report("Launching from each core", table(rows), as_json=options.json)


if __name__ == "__main__":
    main()
