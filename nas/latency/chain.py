"""Times pieces one after another, as they run in a model: each finds the caches as the pieces before it left them.

One round prepares every link, runs them once untimed, prepares them again and times each one: forwards in order, then
the backward passes in reverse order. A piece that the model calls often is in the chain `COPIES` times, each time with
weights of its own.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nas.latency.runs import Run
from tuner.measure.garbage import collector_off
from tuner.measure.measure import Clock, Timing, timing

COPIES = 3  # of one piece: the first follows other pieces, the later ones are in the rhythm of the model


@dataclass(frozen=True)
class Link:
    """One run in a chain. key: of the piece; links of one key are copies."""

    key: Hashable
    run: Run


@dataclass(frozen=True)
class Times:
    """Milliseconds of a piece: of its first call in the chain, and of the later ones (the same if there is one)."""

    first: Timing
    later: Timing


def shortened(keys: Iterable[Any], copies: int = COPIES) -> list[Any]:
    """The keys in order, each at most `copies` times."""
    seen: Counter[Any] = Counter()
    found = []
    for key in keys:
        seen[key] += 1
        if seen[key] <= copies:
            found.append(key)
    return found


def timed(
    links: Sequence[Link],
    clock: Clock,
    *,
    gauge: Callable[[], object],
    warmup: int,
    repeats: int,
    seconds: float,
) -> tuple[dict[Hashable, Times], Timing]:
    """The times of every key, and those of the gauge, which runs before each round.

    repeats: rounds; there are fewer after `seconds`, but at least one.
    """
    samples: list[list[float]] = [[] for _ in links]
    gauged: list[float] = []
    deadline = clock.now() + seconds
    with collector_off():
        for number in range(warmup + repeats):
            if gauged and clock.now() > deadline:
                break
            gauge()
            measured = clock.time(gauge)
            times = _round(links, clock)
            if number < warmup and clock.now() < deadline:
                continue
            gauged.append(measured)
            for kept, milliseconds in zip(samples, times, strict=True):
                kept.append(milliseconds)
    return _by_key(links, samples), timing(gauged)


def _round(links: Sequence[Link], clock: Clock) -> list[float]:
    for link in links:
        link.run.prepare()
        link.run.all()
    for link in links:
        link.run.prepare()
    times = [clock.time(link.run.call) for link in links]
    for place in reversed(range(len(links))):
        back = links[place].run.back
        if back is not None:
            times[place] += clock.time(back)
    return times


def _by_key(links: Sequence[Link], samples: Sequence[Sequence[float]]) -> dict[Hashable, Times]:
    places: dict[Hashable, list[int]] = {}
    for place, link in enumerate(links):
        places.setdefault(link.key, []).append(place)
    found = {}
    for key, (first, *later) in places.items():
        rounds = zip(*(samples[place] for place in later or [first]), strict=True)
        found[key] = Times(timing(samples[first]), timing([statistics.fmean(each) for each in rounds]))
    return found
