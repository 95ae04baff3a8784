"""The cost of finding the tuned choice of a call: `python -m benchmarks.lookup [--json] [--quick]`.

Problems are looked up repeatedly in a table of 300 problems, as in a training loop: only the choice, the implementation
as the launchers of operations do it, and the first look-up of a problem, found and missed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.support.report import report
from kernels.dispatch import tuned
from kernels.dispatch.registry import Choice, Implementation, Operation
from kernels.dispatch.table import Entry, Table

PROBLEMS = 300
BAR = "5 us"


def compute(x: torch.Tensor) -> torch.Tensor:
    """An operation that does nothing."""
    return x


def operation() -> Operation:
    """An operation with two sizes, a flag, and a block size to choose."""
    return Operation(
        "looked_up",
        compute,
        {"torch": Implementation("torch", compute, {"block": (8, 16)}, default={"block": 8})},
        lambda problem, seed: ((torch.zeros(1),), {}),
        lambda device: {},
        lambda problem: "torch",
        sizes=("rows", "columns"),
        flags=("gradients",),
    )


def measure(repeats: int) -> list[dict[str, object]]:
    """The microseconds of each kind of look-up."""
    known = operation()
    problems = [known.problem("cpu", "float32", (1000 + number, 64), (True,)) for number in range(PROBLEMS)]
    source = known.implementations["torch"].source
    choice = Choice.of("torch", {"block": 16})
    tuned.use("cpu", Table(Entry(problem, choice, 1.0, source) for problem in problems))
    assert tuned.choose(known, problems[0]) == choice
    sizes, flags = (1000, 64), (True,)
    far = known.problem("cpu", "float32", (5000, 64), (True,))

    def fresh() -> None:
        tuned._served.clear()
        tuned.choose(known, problems[7])

    def missed() -> None:
        tuned._served.clear()
        tuned.choose(known, far)

    def launcher() -> object:
        return tuned.implementation(known, "cpu", torch.float32, sizes, flags, None)

    def whole() -> object:
        return tuned.choose(known, known.problem("cpu", "float32", sizes, flags))

    rows = [
        _row("implementation, known problem (a launcher)", repeats, BAR, launcher),
        _row("choice, known problem", repeats, BAR, lambda: tuned.choose(known, problems[7])),
        _row("make the problem, then the choice", repeats, "", whole),
        _row("first time, exact", repeats // 20, "", fresh),
        _row(f"first time, missed among {PROBLEMS}", repeats // 20, "", missed),
    ]
    tuned.use("cpu", None)
    return rows


def _row(what: str, repeats: int, bar: str, call: Callable[[], object]) -> dict[str, object]:
    laps = []
    for _ in range(9):
        began = time.perf_counter_ns()
        for _ in range(repeats):
            call()
        laps.append((time.perf_counter_ns() - began) / repeats / 1e3)
    return {"what": what, "us": round(statistics.median(laps), 2), "bar": bar}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    rows = measure(200 if arguments.quick else 5000)
    report("lookup: microseconds to find the tuned choice", rows, as_json=arguments.json)


if __name__ == "__main__":
    main()
