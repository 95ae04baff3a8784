"""How fast strategies find the optimum of recorded tables.

    python -m benchmarks.quality [--tables macro-flops,hwgpt] [--arms model,nsga2] [--seeds 20] [--processes 2]
                                 [--peers] [--options '{"model": {"start": 10}}'] [--file build/quality.jsonl] [--json]

Every table is a YAML space whose points have recorded, modelled or invented values. The score for two objectives is the
hypervolume relative to that of the exact front. Values are scaled to the range of the table, and the reference point is
its worst corner. For LTS the score is the share of the exact front that was found; for the error alone, the share of
the runs that found the optimum. A line gives the mean over the seeds and the half-width of its 95 % interval (Student's
t). Each run is stored in the file when it ends, so the same command continues after an interruption; runs of other code
are not used. `--peers` adds Optuna's NSGA-II, TPE and GP samplers (GP up to 100 evaluations) and SMAC3, if they are
installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.quality import arms, graphs, hwgpt, invented, lts, macro, own
from benchmarks.quality.table import Missing, Table
from benchmarks.support.report import report, skip

SOURCES = (macro, hwgpt, lts, own, invented, graphs)
ROOT = Path(__file__).parents[2]
CODE = ("nas/strategies/**/*.py", "nas/pareto.py", "searchspace/space/*.py", "benchmarks/quality/*.py")
ENOUGH = 1 - 1e-9  # a score of 1
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26, 12: 2.20, 15: 2.14, 20: 2.09, 30: 2.05}


@lru_cache(maxsize=1)
def tables() -> dict[str, Table]:
    """The tables whose data are on this machine. Prints what is missing on stderr."""
    found: dict[str, Table] = {}
    for source in SOURCES:
        try:
            found |= {table.name: table for table in source.tables()}
        except Missing as error:
            print(f"Skipped: {error}", file=sys.stderr)
    return found


def one_run(job: dict[str, Any]) -> dict[str, Any]:
    """One run: the scores of an arm with a seed on a table, at the budgets of the table."""
    table = tables()[job["table"]]
    most = min(job.get("most") or table.budgets[-1], arms.SLOW.get(job["arm"], table.budgets[-1]))
    budgets = [each for each in table.budgets if each <= most]
    values, seconds, scores, complete = [], 0.0, {}, None
    for row, cpu in islice(arms.run(job["arm"], table, job["seed"], job["options"]), budgets[-1]):
        values.append(row)
        seconds += cpu
        if len(values) in budgets:
            scores[str(len(values))] = round(table.score(values), 6)
        if complete is None and table.budgets[-1] <= 100 and table.score(values) >= ENOUGH:
            complete = len(values)
    for budget in budgets:
        scores.setdefault(str(budget), round(table.score(values), 6))
    return job | {"scores": scores, "complete": complete, "ms": round(1000 * seconds / max(1, len(values)), 2)}


def finished(left: list[dict[str, Any]], processes: int, minutes: float | None) -> Iterator[dict[str, Any]]:
    """The runs of the jobs, as they end. No job starts after `minutes`."""
    began = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        waiting = {pool.submit(one_run, job) for job in left}
        while waiting:
            ended, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in ended)
            if minutes is not None and time.monotonic() - began > 60 * minutes:
                stopped = {each for each in waiting if each.cancel()}
                if stopped:
                    print(f"The time is up; {len(stopped)} runs are left.", file=sys.stderr)
                waiting -= stopped


def source_hash() -> str:
    """A hash of the files in `CODE`: runs of other code are not used."""
    digest = hashlib.sha256()
    for pattern in CODE:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def jobs(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    names = arguments.tables or [name for name in tables() if name != "macro-words"]
    chosen = list(arguments.arms or arms.OURS) + (list(arms.PEERS) if arguments.peers else [])
    if "smac" in chosen and find_spec("smac") is None:
        print("Skipped: SMAC3 is not installed (pip install smac; 2.4.1 was used).", file=sys.stderr)
        chosen.remove("smac")
    options, code = json.loads(arguments.options), arguments.code or source_hash()
    return [
        {
            "table": table,
            "arm": arm,
            "seed": seed,
            "options": options.get(arm, {}),
            "code": code,
            "most": arguments.most,
        }
        for seed in range(arguments.first, arguments.first + arguments.seeds)
        for table in names
        for arm in chosen
    ]


def missing_runs(wanted: list[dict[str, Any]], file: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(the runs that the file has, the jobs that are left)."""
    known = {}
    if file.exists():
        for line in file.read_text().splitlines():
            row = json.loads(line)
            known[_key(row)] = row
    return [known[_key(job)] for job in wanted if _key(job) in known], [j for j in wanted if _key(j) not in known]


def _key(row: dict[str, Any]) -> str:
    return json.dumps([row.get(name) for name in ("table", "arm", "seed", "options", "code", "most")], sort_keys=True)


def rows(runs: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One line for each table and arm."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["table"], run["arm"]), []).append(run)
    for (name, arm), group in sorted(groups.items()):
        table = tables()[name]
        line: dict[str, Any] = {"table": name, "arm": arm, "seeds": len(group)}
        scores = {
            each: [run["scores"][str(each)] for run in group if str(each) in run["scores"]] for each in table.budgets
        }
        line["score after"] = ", ".join(f"{each}: {interval(found)}" for each, found in scores.items() if found)
        target = " / ".join(f"{budget}: {value:g}" for budget, value in table.targets.items())
        complete = [run["complete"] or 0 for run in group]
        line["complete in"] = f"{sum(map(bool, complete))} runs" if table.budgets[-1] <= 100 else ""
        yield line | {"target": target, "ms a proposal": round(fmean(run["ms"] for run in group), 1)}


def interval(figures: list[float]) -> str:
    """The mean and the half-width of its 95 % interval, as text."""
    _, mean, half = point(0, figures)
    return f"{mean:.4f} ± {half:.4f}" if len(figures) > 1 else f"{mean:.4f}"


def point(budget: int, figures: list[float]) -> tuple[int, float, float]:
    """(budget, mean, half-width of its 95 % interval)."""
    if len(figures) < 2:
        return budget, figures[0], 0.0
    factor = T95[max(count for count in T95 if count <= len(figures))]
    return budget, fmean(figures), factor * stdev(figures) / sqrt(len(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {"type": lambda text: text.split(","), "default": None}
    parser.add_argument("--tables", **names, help="names, separated by commas; default all")  # type: ignore[arg-type]
    parser.add_argument("--arms", **names, help=f"default {','.join(arms.OURS)}")  # type: ignore[arg-type]
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--peers", action="store_true", help="also the samplers of other libraries")
    parser.add_argument("--options", default="{}", help="options of arms as JSON: {arm: {option: value}}")
    parser.add_argument("--code", default=None, help="a name for the state of the code, in place of its hash")
    parser.add_argument("--file", type=Path, default=ROOT / "build" / "quality.jsonl")
    parser.add_argument("--most", type=int, default=None, help="evaluations at most; larger budgets are left out")
    parser.add_argument("--minutes", type=float, default=None, help="start no run after this time")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not tables():
        skip("no table is on this machine; set NAS_DATA to the folder of the recorded data.")
    for name in arguments.tables or ():
        if name not in tables():
            parser.error(f"no table is called {name!r}. Known: {', '.join(tables())}")
    done, left = missing_runs(jobs(arguments), arguments.file)
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    with arguments.file.open("a") as file:
        for run in finished(left, arguments.processes, arguments.minutes):
            file.write(json.dumps(run) + "\n")
            file.flush()
            done.append(run)
    report("search quality on recorded tables: mean and 95 % interval", list(rows(done)), as_json=arguments.json)


if __name__ == "__main__":
    main()
