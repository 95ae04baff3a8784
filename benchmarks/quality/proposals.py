"""The time of a proposal, after many results.

    python -m benchmarks.quality.proposals [--strategies model,nsga2] [--results 1000 10000 100000] [--proposals 100]
                                           [--json]

The space and the objectives are those of HW-GPT-Bench S, modelled (needs the recorded data, see `NAS_DATA`). A strategy
gets the results of `--results` random architectures, as if an earlier search had drawn them. Then it makes one proposal
after the other and gets each result, as with one worker. "ms" is the mean CPU time of a proposal with its
result, "slowest" the longest; "first" is the first proposal, which fits a model to all results. The bars are those of
`model`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from benchmarks.quality import hwgpt
from benchmarks.quality.table import Missing, Table
from benchmarks.support.report import report, skip
from nas.strategies.contract import Result, Started, Strategy
from nas.strategies.registry import make
from searchspace.space.point import Point

STRATEGIES = "random,aging_evolution,nsga2,nsga3,tournament,local_search,model"
BARS = {1_000: 20.0, 10_000: 60.0, 100_000: 100.0}  # milliseconds


def drawn(table: Table) -> Iterator[Point]:
    """Distinct random architectures."""
    rng, seen = random.Random(0), set()
    while True:
        point = table.space.sample(rng)
        if point.architecture.hash not in seen:
            seen.add(point.architecture.hash)
            yield point


def told(strategy: Strategy, number: int, point: Point, table: Table) -> float:
    """Tell the strategy that a trial started, and its result -> the CPU seconds of the strategy alone."""
    values = table.values(point)
    began = time.process_time()
    strategy.start(Started(number, point))
    strategy.tell(Result(number, 0, 1, point, values))
    return time.process_time() - began


def milliseconds(name: str, table: Table, results: int, proposals: int) -> list[float]:
    """CPU time of each proposal with its result."""
    strategy = make(name, table.space, 0, table.objectives, table.evaluate, None)
    for number, point in enumerate(islice(drawn(table), results)):
        told(strategy, number, point, table)
    found = []
    for number in range(results, results + proposals):
        began = time.process_time()
        point = strategy.ask(number)[0].point
        asked = time.process_time() - began
        found.append(1e3 * (asked + told(strategy, number, point, table)))
    return found


def row(name: str, results: int, times: list[float]) -> dict[str, Any]:
    """One row of the table. The first proposal, which makes the model, has its own column."""
    mean, bar = statistics.fmean(times[1:]), BARS.get(results) if name == "model" else None
    return {
        "strategy": name,
        "results": results,
        "ms": mean,
        "slowest": max(times[1:]),
        "first": times[0],
        "bar": bar or "",
        "reached": "" if bar is None else mean <= bar,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The time of a proposal, after many results.")
    parser.add_argument("--strategies", default=STRATEGIES, help="names, separated by commas")
    parser.add_argument("--results", type=int, nargs="+", default=list(BARS))
    parser.add_argument("--proposals", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        table = next(each for each in hwgpt.tables() if each.name == "hwgpt")
    except Missing as error:
        skip(str(error))
    rows = [
        row(name, results, milliseconds(name, table, results, options.proposals))
        for results in options.results
        for name in options.strategies.split(",")
    ]
    report("CPU time of a proposal with its result", rows, as_json=options.json)


if __name__ == "__main__":
    main()
