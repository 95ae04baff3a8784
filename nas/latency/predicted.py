"""Predicts the latency of an architecture as the sum of its pieces.

The missing pieces of an architecture are timed in a short model of their own: one after another, in the order of the
architecture, each at most `COPIES` times. So each finds the caches as it would in the model. The first call of a piece
and the later ones have times of their own. The time of an empty piece is subtracted from every call: it is the cost of
timing alone. A training step adds the optimiser's step, which follows from the sizes of the parameters.

The sums share a systematic error, which `nas.latency.calibration` corrects.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from kernels.dispatch.device import resolve
from nas.latency import bench, runs, served, timing
from nas.latency.calibration import CONFIDENCE, CrossCheck
from nas.latency.measured import PREDICTED, CannotRun, PhaseLatency, latency
from nas.latency.pieces import NOTHING, NOWHERE, Call, CannotCompose, Piece, calls
from nas.latency.runs import Run, Setting
from nas.latency.table import Entry, Table, piece_problem, problem
from nas.latency.timing import Times
from searchspace.model.architecture import Architecture
from tuner.measure import garbage
from tuner.outcome import poisons

SECONDS, PIECES_SECONDS, STEP_SECONDS = 20.0, 20.0, 5.0  # for an architecture, the missing pieces, the optimiser's step
BUILDS, ROUNDS = 4, 4
COPIES = 3  # of one piece: the first follows other pieces, the later ones are in the rhythm of the model
# Calls of a model that is measured as a whole. A decode step of an LSTM of width 48 takes 1.3 times as long among 30
# other calls as alone, a step of four of width 256 takes 1.17 times as long (AMD EPYC).
FEW = 5
EMPTY = Piece(NOTHING, 1, 1, NOWHERE)
SIZES = (2**5, 2**9, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22)  # elements of a tensor of the optimiser
TOGETHER, TENSORS = 2**20, 32  # elements in all tensors of one measurement at least, and the most tensors


@dataclass(frozen=True)
class Sum:
    """The milliseconds of all pieces of an architecture, and the choices that serve them."""

    milliseconds: float
    served: served.Rows


class Predictor:
    """Predicts latencies in a setting from a table of pieces, and measures the missing pieces.

    extras: measurements of whole architectures include memory, and energy if the device reports it.
    """

    def __init__(self, table: Table, setting: Setting, extras: bool = False) -> None:
        self.table, self.setting, self.extras = table, setting, extras

    def check(self, architectures: Iterable[Architecture], count: int) -> CrossCheck:
        """Measure `count` architectures as a whole and as a sum and store both; skip one without a sum."""
        ratios: list[float] = []
        sums = {}
        for each in architectures:
            if len(ratios) == count:
                break
            with suppress(CannotCompose, CannotRun):
                parts, whole = self.sum(each), self.measured(each)
                ratios.append(whole.milliseconds / parts.milliseconds)
                sums[each.hash] = parts.milliseconds, parts.served
        self.table.keep_sums(self.setting, sums)
        return CrossCheck(tuple(ratios))

    def predicted(self, architecture: Architecture, check: CrossCheck) -> PhaseLatency:
        """The corrected sum. Raises CannotCompose if the architecture is not a sum of pieces."""
        found = self.sum(architecture)
        middle, spread = found.milliseconds * check.factor, check.spread
        return PhaseLatency(
            phase=self.setting.phase,
            milliseconds=middle,
            low=middle / spread,
            high=middle * spread,
            samples=0,
            coverage=CONFIDENCE,
            peak_bytes=None,
            kind=PREDICTED,
            tokens_per_second=1e3 * self.setting.tokens / middle,
            served=found.served,
        )

    def measured(self, architecture: Architecture) -> PhaseLatency:
        """The latency of the whole architecture, from the table or measured now and stored there.

        Raises CannotRun if the architecture does not run in this setting.
        """
        known = self.table.model(architecture.hash, self.setting)
        if known is None or (self.extras and known.peak_bytes is None):
            quiet, model = self.table.quiet, architecture.configured
            with turned_into(CannotRun, "it does not run"):
                known = latency(model, self.setting, quiet=quiet, budget_seconds=SECONDS, extras=self.extras)
            self.table.keep_model(architecture.hash, self.setting, known)
        return known

    def sum(self, architecture: Architecture) -> Sum:
        """The sum over all calls of pieces.

        Raises CannotCompose if the architecture is not a sum of pieces, or if a piece does not run alone; CannotRun if
        the architecture does not have the phase or cannot read that far.
        """
        if reason := runs.impossible(architecture.configured, self.setting):
            raise CannotRun(f"This architecture has no phase {self.setting.phase!r}: {reason}")
        if self.setting.phase in runs.WHOLE:
            raise CannotCompose(f"the phase {self.setting.phase} is measured as a whole.")
        made = calls(architecture.configured, self.setting)
        if self.setting.phase != "train" and len(made) <= FEW:
            raise CannotCompose(f"it makes {len(made)} calls only, which stay in the caches from one to the next.")
        empty = Call(replace(EMPTY, length=self.setting.length, width=architecture.configured.config.width))
        found = self._pieces([empty, empty, *made])  # the second one follows another, as pieces do
        total = _together(made, found, found[empty].repeated)
        if self.setting.phase == "train":
            total += self.step(size for call in made if call.fresh for size in found[call].details["elements"])
        if total <= 0:  # pieces as short as the cost of timing them
            raise CannotCompose("its pieces are too short to be timed.")
        return Sum(total, served.together(*(entry.served for entry in found.values())))

    def step(self, sizes: Iterable[int]) -> float:
        """Milliseconds of a step of AdamW over tensors with these numbers of elements.

        AdamW treats one tensor after the other, so the step is the sum over the tensors.
        """
        alike = Setting(phase="train", device=self.setting.device, batch=1, length=1, threads=self.setting.threads)
        keys = {size: problem(alike, update=size) for size in SIZES}
        if self.table.piece(keys[SIZES[-1]]) is None:
            self.table.keep_pieces({keys[size]: entry for size, entry in self._steps().items()})
        times = [entry.milliseconds for key in keys.values() if (entry := self.table.piece(key)) is not None]
        return sum(interpolated(SIZES, times, size) for size in sizes)

    def _steps(self) -> dict[int, Entry]:
        """The time of one tensor of each size in a step of AdamW."""
        where = resolve(self.setting.device)
        counts = {size: min(TENSORS, max(1, TOGETHER // size)) for size in SIZES}
        with runs.on_threads(self.setting.threads), runs.seeded(where):
            found = self._timed(
                SIZES, lambda: [bench.update([(n,)] * c, where) for n, c in counts.items()], STEP_SECONDS
            )
        times = {size: (found[size].first, counts[size]) for size in SIZES}
        return {size: Entry(t.median / count, t.low / count, t.high / count) for size, (t, count) in times.items()}

    def _timed(
        self, keys: Sequence[Hashable], make: Callable[[], Sequence[Run]], seconds: float, warm: int = 0
    ) -> dict[Hashable, Times]:
        """The times of each key, as on the quiet machine; keys: of the runs that `make` builds."""
        gauge, quiet = timing.gauge(resolve(self.setting.device)), self.table.quiet
        found = timing.timed(
            make,
            timing.clock(self.setting),
            gauge,
            quiet,
            builds=BUILDS,
            most=timing.MOST * BUILDS,
            rounds=ROUNDS,
            warm=warm,
            seconds=seconds,
        )
        return timing.by_key(keys, found, gauge, quiet)

    def _pieces(self, made: Sequence[Call]) -> dict[Call, Entry]:
        """The times of all calls. Missing ones are measured together with known ones, in the order of the model."""
        keys = {each: piece_problem(self.setting, each) for each in dict.fromkeys(made)}
        known = {each: entry for each, key in keys.items() if (entry := self.table.piece(key)) is not None}
        if missing := keys.keys() - known.keys():
            first = {replace(call, fresh=True) for call in missing}  # before their weights are used again
            found = self._measure(around(shortened(made), missing | first))
            self.table.keep_pieces({keys[each]: found[each] for each in found if each in missing})
            known |= {each: found[each] for each in missing}
        return known

    def _measure(self, made: Sequence[Call]) -> dict[Call, Entry]:
        where = resolve(self.setting.device)
        alone = turned_into(CannotCompose, "a piece does not run alone")
        with alone, runs.on_threads(self.setting.threads), runs.seeded(where), garbage.little_garbage():
            # The first backward pass after all forwards takes longer. In a model only one is the first: here that of
            # an empty piece.
            every, entries = [*made, Call(EMPTY)], {}

            def make(weights: bench.Weights | None = None) -> list[Run]:
                together = weights or bench.Weights(where)
                return [bench.run(each, self.setting, where, together) for each in every]

            weights = bench.Weights(where)
            first = dict(zip(reversed(every), reversed(make(weights)), strict=True))
            rows = {call: served.by(first[call]) for call in dict.fromkeys(made)}
            elements = {call: weights.elements(call.piece) for call in rows} if self.setting.phase == "train" else {}
            del first, weights
            times = self._timed(every, make, PIECES_SECONDS, self.setting.warm)
        for call, served_by in rows.items():
            more = {"elements": elements[call]} if elements else {}
            time, details = times[call].first, {"repeated": times[call].later.median, **more}
            entries[call] = Entry(time.median, time.low, time.high, served_by, details)
        return entries


def _together(made: Sequence[Call], found: Mapping[Call, Entry], empty: float) -> float:
    """Milliseconds of all calls. The whole model is timed once, so one empty time belongs to it."""
    total, seen = empty, set()
    for call in made:
        total += (found[call].repeated if call in seen else found[call].milliseconds) - empty
        seen.add(call)
    return total


def shortened(made: Sequence[Call]) -> list[Call]:
    """The calls in order, equal ones at most `COPIES` times."""
    seen: Counter[Call] = Counter()
    found = []
    for call in made:
        seen[call] += 1
        if seen[call] <= COPIES:
            found.append(call)
    return found


def around(made: Sequence[Call], missing: Set[Call]) -> list[Call]:
    """The missing calls with those right before and after each, in order."""
    near = [made[max(0, place - 1) : place + 2] for place in range(len(made))]
    return [call for call, some in zip(made, near, strict=True) if not missing.isdisjoint(some)]


def interpolated(sizes: Sequence[int], times: Sequence[float], size: int) -> float:
    """The time at `size`, linear in the logarithms; beyond the largest size in proportion to it.

    Small tensors cost the overhead of their operators, large ones the traffic to memory.
    """
    if size >= sizes[-1]:
        return times[-1] * size / sizes[-1]
    if size <= sizes[0]:
        return times[0]
    above = bisect_left(sizes, size)
    share = math.log(size / sizes[above - 1]) / math.log(sizes[above] / sizes[above - 1])
    return times[above - 1] ** (1 - share) * times[above] ** share


@contextmanager
def turned_into(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise `kind` for every error inside the block, except those after which the device cannot be trusted.

    Blocks may be of users: what would end Python, except for Ctrl-C, is such an error too.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if poisons(error):
            raise
        raise kind(f"{what}: {type(error).__name__}: {error}") from error
