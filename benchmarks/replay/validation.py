"""Settings of the default strategy that are chosen on some spaces and evaluated on others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.replay.runs import Job, Result, Results, complete, device, kernel, spaces
from tuner.strategies.surrogate import Settings

GRID = {"initial": (6, 10, 16), "length": (1.0, 1.5), "ranks": (0.5, 1.0)}
BUDGETS = (25, 50, 100, 200, 400)

Setting = tuple[tuple[str, float], ...]


def validate(results: Results, seeds: Iterable[int], most: int, processes: int) -> list[dict[str, object]]:
    """For every kernel and every device that is left out: its result with the setting that is best for the others.

    The best setting has the highest mean over budgets and spaces. The setting in use is listed too.
    """
    budgets = [budget for budget in BUDGETS if budget <= most]
    jobs = [
        Job("cold", "surrogate", name, seed, most, setting) for seed in seeds for setting in grid() for name in spaces()
    ]
    for count, _ in enumerate(complete(results, jobs, processes), 1):
        if count % len(spaces()) == 0:
            print(f"{count} of {len(jobs)}", flush=True)
    found: dict[Setting, dict[str, list[Result]]] = {}
    for job in jobs:
        found.setdefault(job.settings, {}).setdefault(job.space, []).append(results.known[job])
    reached = {
        setting: {
            name: np.array([np.mean([run.fraction(budget) for run in runs]) for budget in budgets])
            for name, runs in by_space.items()
        }
        for setting, by_space in found.items()
    }
    return [*_left_out("kernel", kernel, reached, budgets), *_left_out("device", device, reached, budgets)]


def grid() -> list[Setting]:
    """Every combination of `GRID`."""
    return [tuple(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]


def _left_out(
    what: str, group: Callable[[str], str], reached: dict[Setting, dict[str, np.ndarray]], budgets: list[int]
) -> list[dict[str, object]]:
    names = list(spaces())
    own = tuple((name, getattr(Settings(), name)) for name in GRID)
    rows: list[dict[str, object]] = []
    chosen: dict[str, np.ndarray] = {}
    for left_out in dict.fromkeys(map(group, names)):
        seen = [name for name in names if group(name) != left_out]
        best = max(reached, key=lambda setting: float(np.mean([reached[setting][name].mean() for name in seen])))
        judged = [name for name in names if group(name) == left_out]
        chosen |= {name: reached[best][name] for name in judged}
        rows.append(_row(f"{what} {left_out}", best, np.mean([chosen[name] for name in judged], axis=0), budgets))
    rows.append(_row(f"mean over spaces, their {what} left out", (), np.mean(list(chosen.values()), axis=0), budgets))
    if own in reached:
        rows.append(_row("... the setting in use", own, np.mean(list(reached[own].values()), axis=0), budgets))
    return rows


def _row(what: str, setting: Setting, values: np.ndarray, budgets: list[int]) -> dict[str, object]:
    said = " ".join(f"{name}={value:g}" for name, value in setting)
    return {"left out": what, "chosen": said, **{str(b): f"{v:.4f}" for b, v in zip(budgets, values, strict=True)}}
