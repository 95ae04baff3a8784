"""Choose a setting of a strategy by cross-validation over tables: each table is held out once.

    python -m benchmarks.quality --arms model --options '{"model": {"start": 2}}' --file build/settings.jsonl
    python -m benchmarks.quality.choose build/settings.jsonl [--arm model] [--budget N] [--json]

Reads stored runs of one strategy with several settings. For each table, the setting that is best on the other tables is
chosen: it has the highest mean of their scores, each in standard deviations over the settings' runs of its table. A
line gives the table that was held out, the setting that was chosen without it, and the score of this setting on it,
next to the score of the best setting for that table. The last line is the choice from all tables, which is not tested.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from benchmarks.quality.__main__ import interval
from benchmarks.support.report import report

Scores = dict[str, dict[str, list[float]]]  # table -> setting -> scores of the seeds


def scores(runs: Iterable[dict[str, Any]], arm: str, budget: int | None) -> Scores:
    """The scores at `budget`, or at the largest one of each table, for the settings that all tables have."""
    found: Scores = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run["arm"] == arm:
            known = run["scores"]
            at = str(budget) if budget is not None else max(known, key=int)
            if at in known:
                found[run["table"]][json.dumps(run["options"], sort_keys=True)].append(known[at])
    common = set.intersection(*(set(each) for each in found.values())) if found else set()
    return {table: {each: by[each] for each in sorted(common)} for table, by in sorted(found.items())}


def best(found: Scores) -> str:
    """The setting with the highest mean of standardised scores over the tables of `found`."""
    totals: dict[str, float] = defaultdict(float)
    for by in found.values():
        every = [score for runs in by.values() for score in runs]
        middle, spread = fmean(every), pstdev(every) or 1.0
        for setting, runs in by.items():
            totals[setting] += (fmean(runs) - middle) / spread
    return max(sorted(totals), key=totals.__getitem__)


def rows(found: Scores) -> list[dict[str, str]]:
    """One line for each table that is held out, and one for the choice from all tables."""
    lines = []
    for table, by in found.items():
        chosen = best({name: each for name, each in found.items() if name != table})
        top = best({table: by})
        lines.append(
            {
                "held out": table,
                "chosen on the others": chosen,
                "score on it": interval(by[chosen]),
                "best there": f"{top}: {interval(by[top])}",
                "seeds": str(len(by[chosen])),
            }
        )
    return [*lines, {**dict.fromkeys(lines[0], ""), "held out": "none", "chosen on the others": best(found)}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="runs that benchmarks.quality has stored")
    parser.add_argument("--arm", default="model")
    parser.add_argument("--budget", type=int, default=None, help="default: the largest of each table")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    runs = [json.loads(line) for file in arguments.files for line in file.read_text().splitlines()]
    found = scores(runs, arguments.arm, arguments.budget)
    settings = next(iter(found.values()), {})
    if len(found) < 2 or len(settings) < 2:
        parser.error(
            f"needs runs of {arguments.arm!r} on two tables or more, each with the same two settings or more; found "
            f"{len(found)} tables and {len(settings)} settings that all of them have"
        )
    report("settings chosen without the table held out", rows(found), as_json=arguments.json)


if __name__ == "__main__":
    main()
