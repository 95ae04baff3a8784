"""Recorded tuning spaces: every configuration of a kernel with its measurements, so that no device is needed.

A file is gzipped JSON in the format of Kernel Tuner's caches: `tune_params` holds the values of each parameter, `cache`
one record per configuration with its parameters, `time` (milliseconds, or a text if it failed), `times` and
`compile_time`. `synthetic` makes similar spaces, so that tests need no data.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.space import TuningSpace


@dataclass(frozen=True)
class Recorded:
    """times: [N] of milliseconds, NaN if a configuration failed. samples: [N, R] or [N, 1]. compile: [N]."""

    name: str
    space: TuningSpace
    times: np.ndarray
    samples: np.ndarray
    compile: np.ndarray

    @property
    def best(self) -> float:
        """The fastest time in the whole space."""
        return float(np.nanmin(self.times))


def load(path: str | Path) -> Recorded:
    """Read a file. Raises ValueError that names the file and the mistake in it."""
    path = Path(path)
    try:
        return _recorded(path.name.partition(".")[0], json.loads(gzip.decompress(path.read_bytes())))
    except (
        OSError,
        EOFError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        zlib.error,
        RecursionError,
    ) as error:
        raise ValueError(
            f"{path} is not a recorded tuning space: {type(error).__name__}: {str(error)[:500]}"
        ) from error


def _recorded(name: str, data: Any) -> Recorded:
    parameters = {name: data["tune_params"][name] for name in data["tune_params_keys"]}
    records = list(data["cache"].values())
    if not parameters or not records:
        raise ValueError("it has no parameters or no configurations")
    places = [[values.index(record[name]) for name, values in parameters.items()] for record in records]
    times = np.array([_milliseconds(record["time"]) for record in records])
    return Recorded(
        name,
        TuningSpace(parameters, np.array(places)),
        times,
        _samples(records, times),
        np.array([float(record.get("compile_time") or 0.0) for record in records]),
    )


def _milliseconds(time: Any) -> float:
    return float(time) if isinstance(time, int | float) else float("nan")


def _samples(records: list[dict[str, Any]], times: np.ndarray) -> np.ndarray:
    count = min((len(record["times"]) for record in records if record.get("times")), default=1)
    rows = [
        record["times"][:count] if record.get("times") else [time] * count
        for record, time in zip(records, times, strict=True)
    ]
    return np.array(rows, dtype=np.float64)


def limited(recorded: Recorded, share: float, seed: int) -> Recorded:
    """The space with a resource that runs out: about `share` of the configurations fail, those that need most of it.

    The need is the product of two or more of the sizes, drawn at random, as threads times registers and the bytes of a
    tile are products of parameters.
    """
    rng = np.random.default_rng([seed, 5])
    logarithms = list(recorded.space.logarithms.values())
    some = rng.choice(len(logarithms), int(rng.integers(2, len(logarithms) + 1)), replace=False)
    need = np.sum([logarithms[column] for column in some], axis=0).round(6)
    levels = np.unique(need)
    shares = [(need > level).mean() for level in levels]
    fails = need > levels[int(np.argmin(np.abs(np.array(shares) - share)))]
    samples = np.where(fails[:, None], np.nan, recorded.samples)
    return replace(recorded, times=np.where(fails, np.nan, recorded.times), samples=samples)


def synthetic(seed: int, samples: int = 8) -> Recorded:
    """An invented kernel with about two thousand configurations: it prefers certain tiles and full warps, fails where
    memory runs out, and has a little ruggedness and two per cent of noise."""
    rng = np.random.default_rng(seed)
    parameters = {
        "block_x": [16, 32, 48, 64, 96, 128, 192, 256],
        "block_y": [1, 2, 4, 8, 16],
        "tile_x": [1, 2, 3, 4],
        "tile_y": [1, 2, 4],
        "vector": [1, 2, 4],
        "shared": [0, 1],
    }
    space = TuningSpace.product(parameters, [lambda c: c["block_x"] * c["block_y"] <= 1024])  # type: ignore[operator]
    values = {
        name: np.array(options, dtype=np.float64)[space.places[:, column]]
        for column, (name, options) in enumerate(parameters.items())
    }
    threads, work = values["block_x"] * values["block_y"], values["tile_x"] * values["tile_y"]
    wanted_threads, wanted_work = 2.0 ** rng.uniform(6, 9), 2.0 ** rng.uniform(0, 3)
    cost = 0.25 * np.log2(threads / wanted_threads) ** 2 + 0.3 * np.log2(work / wanted_work) ** 2
    cost += rng.uniform(0.2, 0.8) * (threads % 32 > 0) + rng.uniform(0, 0.2) * np.log2(values["vector"])
    cost += rng.uniform(-0.4, 0.4) * values["shared"] + 0.05 * rng.standard_normal(len(space))
    times = np.exp(cost - cost.min()) * 10 ** rng.uniform(-1, 2)
    memory = threads * work * values["vector"] * values["shared"]
    times[memory > np.quantile(memory, 0.96)] = np.nan
    noise = 1 + 0.02 * np.abs(rng.standard_normal((len(space), samples)))
    return Recorded(f"synthetic_{seed}", space, times, times[:, None] * noise, rng.uniform(500, 3000, len(space)))
