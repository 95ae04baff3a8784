"""Disturbs one search after the other, round by round, and compares each with its undisturbed twin."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.chaos.places import Place

FAILURES = 8  # in a row, of processes that ended with an error, as after a full disk or a lost database
STUCK_SECONDS = 400.0  # after the last round; then a search that has not ended is stuck


@dataclass
class Tally:
    """The counts of a run and its problems. rounds: by kind of fault. unequal: broken searches by kind of fault."""

    rounds: Counter[str] = field(default_factory=Counter)
    unequal: Counter[str] = field(default_factory=Counter)
    searches: int = 0
    trials: int = 0
    problems: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def table(self) -> list[dict[str, object]]:
        """A row for each kind of fault."""
        equal = "lost, repeated, miscounted, broken, or another front"
        return [
            {"fault": kind, "rounds": rounds, f"searches with {equal}": self.unequal[kind]}
            for kind, rounds in sorted(self.rounds.items())
        ]


def run(
    place: Place, rounds: int, seed: int, trials: int, tally: Tally, say: Callable[[str], None] = lambda text: None
) -> None:
    """Disturb searches of `trials` trials in a place, `rounds` times, each kind of fault about equally often."""
    luck, done = random.Random(seed), 0
    try:
        while done < rounds and place.faults:
            search = place.begin(tally.searches, trials)
            met = _disturb(place, luck, rounds - done, tally, say)
            done += met.total()
            found = search.problems()
            tally.problems += found
            tally.unequal.update(list(met) if found else [])
            tally.searches += 1
            tally.trials += trials
            say(f"{tally.rounds.total()} rounds in {tally.searches} searches, {len(tally.problems)} problems")
            if not found:
                shutil.rmtree(search.folder, ignore_errors=True)
    finally:
        place.close()
        tally.missing |= place.missing


def _disturb(place: Place, luck: random.Random, most: int, tally: Tally, say: Callable[[str], None]) -> Counter[str]:
    """Run one search to its end, and disturb it repeatedly while rounds are left -> the rounds by kind."""
    met: Counter[str] = Counter()
    failures, last = 0, time.monotonic()
    while (code := place.tend()) != 0:
        failures = failures + 1 if code is not None and code > 0 else 0 if code is None else failures
        if failures > FAILURES or time.monotonic() - last > STUCK_SECONDS:
            why = f"it ended with {code}" if failures > FAILURES else "it does not end"
            tally.problems.append(f"search {tally.searches}: {why}: {place.log.read_text()[-1500:]}")
            break
        time.sleep(luck.uniform(*place.pause))
        if met.total() < most:
            kind = min(luck.sample(sorted(place.faults), len(place.faults)), key=lambda each: tally.rounds[each])
            place.faults[kind](luck)
            met[kind] += 1
            tally.rounds[kind] += 1
            say(f"round {tally.rounds.total()}: {kind}")
            last = time.monotonic()
    place.rest()
    return met
