"""Times pieces one after another, as they run in a model: each finds the caches as the pieces before it left them.

One round prepares every link and times each one: forwards in order, then the backward passes in reverse order. A piece
that the model calls often is in the chain `COPIES` times. The times of a round are divided by the gauge around it
(`nas.latency.gauge`), and on a CPU the third of the rounds with the shortest sums counts.

The place of the weights in memory changes the times. So the links are built several times, and more often while the sum
of a round is uncertain.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nas.latency.gauge import Gauge
from nas.latency.runs import Run
from nas.latency.turns import in_turns
from tuner.measure.interval import median_interval
from tuner.measure.measure import Clock, Timing, timing

BUILDS, WARMUP, ROUNDS = 4, 1, 4
MOST = 3  # times as many builds while the interval around the sum of a round is wider than this to each side
WIDE = 0.02
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
    make: Callable[[], Sequence[Link]],
    clock: Clock,
    *,
    gauge: Gauge,
    quiet: float,
    seconds: float,
    warm: int = 0,
) -> dict[Hashable, Times]:
    """The times of every key, as on the quiet machine. The gauge runs before and after each round.

    make: builds the links, always with the same keys; `BUILDS` times, and up to `MOST` times as often while the sum of
    a round is uncertain. quiet: milliseconds of the gauge on the quiet machine. No round starts after `seconds`, but
    there is one, and one of another build if it took all the time: the process may have stood still. warm: untimed
    rounds before each timed one.
    """
    rounds: list[list[float]] = []
    deadline = clock.now() + seconds
    for build in range(MOST * BUILDS):
        late = len(rounds) > 1 and clock.now() > deadline
        if late or (build >= BUILDS and not _is_uncertain(rounds, gauge)):
            break
        links = make()
        found = in_turns(
            partial(_round, links, clock),
            gauge,
            clock,
            prepare=partial(_warm_up, links, clock, warm),
            warmup=WARMUP,
            rounds=ROUNDS,
            deadline=deadline,
        )
        rounds += [[each * quiet / same for each in times] for times, same in found]
    return _by_key(links, [*zip(*(rounds[each] for each in gauge.quietest(_sums(rounds))), strict=True)])


def _is_uncertain(rounds: Sequence[Sequence[float]], gauge: Gauge) -> bool:
    """Whether the interval around the median sum of the rounds that count is wide."""
    sums = _sums(rounds)
    interval = median_interval([sums[each] for each in gauge.quietest(sums)])
    return interval.high - interval.low > 2 * WIDE * interval.median


def _sums(rounds: Sequence[Sequence[float]]) -> list[float]:
    return [sum(each) for each in rounds]


def _round(links: Sequence[Link], clock: Clock) -> list[float]:
    for link in links:
        link.run.prepare()
    times = [clock.time(link.run.call) for link in links]
    for place in reversed(range(len(links))):
        back = links[place].run.back
        if back is not None:
            times[place] += clock.time(back)
    return times


def _warm_up(links: Sequence[Link], clock: Clock, rounds: int) -> None:
    for _ in range(rounds):
        _round(links, clock)


def _by_key(links: Sequence[Link], samples: Sequence[Sequence[float]]) -> dict[Hashable, Times]:
    places: dict[Hashable, list[int]] = {}
    for place, link in enumerate(links):
        places.setdefault(link.key, []).append(place)
    found = {}
    for key, (first, *later) in places.items():
        rounds = zip(*(samples[place] for place in later or [first]), strict=True)
        found[key] = Times(timing(samples[first]), timing([statistics.fmean(each) for each in rounds]))
    return found
