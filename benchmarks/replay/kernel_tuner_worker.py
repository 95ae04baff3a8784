"""Kernel Tuner's strategies on one recorded space, in its simulation mode.

Run it with the Python that has Kernel Tuner installed. It reads a request as JSON from the standard input: `cache`, a
file in Kernel Tuner's format, and `runs`, each with a strategy, a seed and a number of evaluations. It writes one line
of JSON per run: the indices of the evaluated entries of the cache, in order and without repetition, and the seconds
that it took, or the error with which it ended.
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
    os.dup2(2, 1)  # the output of the strategies goes to stderr
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
        except Exception as problem:  # an error of a strategy is its result
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
    """Build the space only for the first run, because that takes longer than most runs. The others get a copy."""
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
