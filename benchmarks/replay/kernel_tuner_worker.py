"""Kernel Tuner's strategies on one recorded space, in its simulation mode; run by the Python that has it installed.

Reads a request as JSON from the standard input: `cache`, a file in Kernel Tuner's format, and `runs`, each a strategy,
a seed and how many evaluations. Writes a line of JSON a run: the places in the cache of what was evaluated, in order
and without repeats, and the seconds that it took, or the error that it ended with.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sys
import time
from typing import Any

import kernel_tuner
import numpy as np
from kernel_tuner import interface, util
from kernel_tuner.runners.simulation import SimulationRunner


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the strategies print goes elsewhere
    request = json.load(sys.stdin)
    data = util.read_cache(request["cache"], open_cache=False)
    numbers = {key: number for number, key in enumerate(data["cache"])}
    util.process_cache = lambda *_: data["cache"]  # read once
    interface.Searchspace = _once(interface.Searchspace)
    order: list[int] = []
    _record(order, numbers)
    for strategy, seed, evaluations in request["runs"]:
        random.seed(seed)
        np.random.seed(seed)
        order.clear()
        start, error = time.perf_counter(), None
        try:
            _tune(data, numbers, request["cache"], strategy, seed, evaluations)
        except Exception as problem:  # whatever a strategy raises is its result
            error = f"{type(problem).__name__}: {problem}"
        found = list(dict.fromkeys(order))[:evaluations]
        answer = {"order": found, "seconds": time.perf_counter() - start, "error": error}
        print(json.dumps(answer), file=answers, flush=True)


def _tune(data: dict[str, Any], numbers: dict[str, int], cache: str, strategy: str, seed: int, most: int) -> None:
    names = data["tune_params_keys"]

    def recorded(configuration: dict[str, Any]) -> bool:
        return ",".join(str(configuration[name]) for name in names) in numbers

    kernel_tuner.tune_kernel(
        data["kernel_name"],
        "__global__ void replayed() {}",
        data["problem_size"],
        [],
        {name: data["tune_params"][name] for name in names},
        restrictions=recorded,
        cache=cache,
        simulation_mode=True,
        lang="CUDA",
        quiet=True,
        strategy=strategy,
        strategy_options={"max_fevals": most},
        seed=seed,
    )


def _once(make: Any) -> Any:
    """The space is built for the first run, which takes longer than most runs; the others get a copy."""
    made: list[Any] = []

    def again(*arguments: Any, **options: Any) -> Any:
        if not made:
            made.append(make(*arguments, **options))
        return copy.copy(made[0])

    return again


def _record(order: list[int], numbers: dict[str, int]) -> None:
    whole = SimulationRunner.run

    def recording(self: Any, configurations: Any, options: Any) -> Any:
        configurations = list(configurations)
        results = whole(self, configurations, options)
        for configuration, result in zip(configurations, results):
            number = numbers.get(",".join(str(value) for value in configuration))
            if result is not None and number is not None:
                order.append(number)
        return results

    SimulationRunner.run = recording


if __name__ == "__main__":
    main()
