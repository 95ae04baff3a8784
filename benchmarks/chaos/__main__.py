"""Disturbs running searches in many ways and counts what is lost.

    python -m benchmarks.chaos [--rounds 200] [--places local remote cluster own_ray] [--kinds driver disk] [--seed 0]
        [--trials 24] [--json]

Places: `local` (two processes on SQLite), `remote` (two processes on PostgreSQL), `cluster` (Ray and PostgreSQL),
`own_ray` (Ray as a search starts it, on SQLite). Each round makes one fault at a random moment and then restores the
infrastructure; a process that ended is started again with the same command. When a search has spent its budget, its
database is compared with that of an undisturbed search: no trial may be lost, repeated or counted twice, every
checkpoint must be complete, every trial must have the same architecture and the same loss to the last bit, and the
Pareto front must be the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.chaos import places
from benchmarks.chaos.rounds import Tally, run
from benchmarks.support.report import report

TRIALS = 24  # of a search


def _cluster(folder: Path) -> places.Place:
    from benchmarks.chaos.cluster import Cluster

    return Cluster(folder)


def _own_ray(folder: Path) -> places.Place:
    from benchmarks.chaos.cluster import OwnRay

    return OwnRay(folder)


PLACES: dict[str, Callable[[Path], places.Place]] = {
    "local": places.Local,
    "remote": places.Remote,
    "cluster": _cluster,
    "own_ray": _own_ray,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--kinds", nargs="+", default=[], help="only faults whose names contain one of these words")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--strategy", default="random", help="the strategy of the searches, such as auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tally, began = Tally(), time.monotonic()
    # Not in the home folder of root, because PostgreSQL runs as another user.
    with tempfile.TemporaryDirectory(prefix="nas-chaos-", ignore_cleanup_errors=True) as folder:
        rounds, more = divmod(arguments.rounds, len(arguments.places))
        for index, name in enumerate(arguments.places):
            (own := Path(folder) / name).mkdir()
            place = PLACES[name](own)
            place.strategy = arguments.strategy
            place.faults = places.only(place.faults, arguments.kinds)
            say = partial(print, file=sys.stderr)
            run(place, rounds + (index < more), arguments.seed, arguments.trials, tally, say)
    minutes = round((time.monotonic() - began) / 60, 1)
    notes = [f"{tally.rounds.total()} rounds, {tally.searches} searches, {tally.trials} trials, {minutes} minutes"]
    notes += [f"not possible here: {kind}: {why}" for kind, why in tally.missing.items()]
    report("chaos", tally.table(), as_json=arguments.json, notes=notes + tally.problems)
    if tally.problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
