"""Predicts the latency of an architecture as the sum of its pieces, with an interval.

Every piece is timed in two states, in turns with other pieces: after others, when the caches hold their data, and right
after a copy of itself. In a model a call is in one of these states or between them, depending on how many kinds of
blocks ran since the last call of the same piece. The time of an empty piece is subtracted from every call: it is the
cost of timing alone.

The sums share a systematic error. A factor corrects it: the median ratio over some architectures that were measured as
a whole. Each of those is also predicted with the factor of the others, which gives n cross-checked errors. The next
error exceeds the largest of n with probability 1 / (n + 1) for any distribution, which gives the interval of a
prediction (Vovk, Gammerman and Shafer 2005, "Algorithmic Learning in a Random World", section 2.1).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from nas.latency import bench, runs, served
from nas.latency.measured import GAUGE, PREDICTED, CannotRun, PhaseLatency, clock, gauge, latency, slowed
from nas.latency.pieces import NOTHING, NOWHERE, Call, CannotCompose, Piece, calls, in_evaluation
from nas.latency.runs import Run, Setting
from nas.latency.table import Entry, Table, problem
from searchspace.model.architecture import Architecture
from searchspace.registry import Configured
from tuner.device import resolve
from tuner.measure import garbage
from tuner.measure.measure import measure
from tuner.outcome import poisons

COMPANY = 4  # pieces in turns at least: with fewer the caches are warmer than in a model
REPEATS, WARMUP, SECONDS = 15, 2, 20.0
CONFIDENCE = 0.95

KINDS = 2  # kinds of blocks between two calls of a piece after which the caches hold the data of others only
REPLAY = "replay"
EMPTY = Piece(NOTHING, 1, 1, NOWHERE)

Action = tuple[Piece, str]  # a piece and an action of `bench`


@dataclass(frozen=True)
class Sum:
    """The milliseconds of all pieces of an architecture, and the choices that serve them."""

    milliseconds: float
    served: served.Rows


@dataclass(frozen=True)
class CrossCheck:
    """ratios: measured latency over the sum of the pieces, for architectures that were measured as a whole."""

    ratios: tuple[float, ...]

    @property
    def factor(self) -> float:
        """The correction of a sum."""
        return statistics.median(self.ratios)

    @property
    def errors(self) -> list[float]:
        """The error of each architecture if the others predict it: |log(measured / predicted)|, smallest first."""
        found = []
        for left_out, ratio in enumerate(self.ratios):
            others = [each for number, each in enumerate(self.ratios) if number != left_out]
            found.append(abs(math.log(ratio / statistics.median(others))))
        return sorted(found)

    @property
    def error(self) -> float:
        """The median of the errors, as a fraction; infinite with fewer than three architectures."""
        return math.expm1(statistics.median(self.errors)) if len(self.ratios) > 2 else math.inf

    def spread(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """(the factor that the next error stays within with probability `confidence`, the actual probability)."""
        count = len(self.ratios)
        rank = min(count, math.ceil((count + 1) * confidence))
        return math.exp(self.errors[rank - 1]), rank / (count + 1)


class Predictor:
    """Predicts latencies in a setting from a table of pieces, and measures the missing pieces."""

    def __init__(self, table: Table, setting: Setting) -> None:
        self.table, self.setting = table, setting

    def check(self, architectures: Iterable[Architecture]) -> CrossCheck:
        """Measure each architecture as a whole and as a sum; skip those that are no sum of pieces or do not run."""
        ratios = []
        for each in architectures:
            try:
                ratios.append(self.measured(each).milliseconds / self.sum(each).milliseconds)
            except (CannotCompose, CannotRun):
                continue
        return CrossCheck(tuple(ratios))

    def predicted(self, architecture: Architecture, check: CrossCheck) -> PhaseLatency:
        """The corrected sum. Raises CannotCompose if the architecture is not a sum of pieces."""
        found = self.sum(architecture)
        middle, (spread, coverage) = found.milliseconds * check.factor, check.spread()
        return PhaseLatency(
            phase=self.setting.phase,
            milliseconds=middle,
            low=middle / spread,
            high=middle * spread,
            samples=0,
            coverage=coverage,
            peak_bytes=None,
            kind=PREDICTED,
            served=found.served,
        )

    def measured(self, architecture: Architecture) -> PhaseLatency:
        """The latency of the whole architecture, from the table or measured now and stored there.

        Raises CannotRun if the architecture does not run in this setting.
        """
        known = self.table.model(architecture.hash, self.setting)
        if known is None:
            quiet = self.table.quiet
            with turned_into(CannotRun, "it does not run"):
                known = latency(architecture.configured, self.setting, quiet=quiet, budget_seconds=SECONDS)
            self.table.keep_model(architecture.hash, self.setting, known)
        return known

    def sum(self, architecture: Architecture) -> Sum:
        """The sum over all calls of pieces.

        Raises CannotCompose if the architecture is not a sum of pieces, or if a piece does not run alone; CannotRun if
        the architecture does not have the phase or cannot read that far.
        """
        if reason := runs.impossible(architecture.configured, self.setting):
            raise CannotRun(f"This architecture has no phase {self.setting.phase!r}: {reason}")
        model = architecture.configured if self._trains else in_evaluation(architecture.configured)
        made = calls(model, self.setting.length)
        empty = replace(EMPTY, length=self.setting.length, width=model.config.width), bench.ACTIONS[self.setting.phase]
        entries = self._pieces([empty, *self._actions(made)])
        total = sum(self._call(call, far, entries, empty) for call, far in zip(made, apart(made), strict=True))
        if self._trains:
            entries[empty] = update = self._update(
                architecture.configured
            )  # the key of the empty piece is free: nothing serves it
            total += update.milliseconds
        if total <= 0:  # pieces as short as the cost of timing them
            raise CannotCompose("its pieces are too short to be timed.")
        return Sum(total, served.together(*(entry.served for entry in entries.values())))

    @property
    def _trains(self) -> bool:
        return self.setting.phase == "train"

    def _actions(self, made: Iterable[Call]) -> list[Action]:
        """The actions whose times are needed, each once, in the order of their first calls."""
        action = bench.ACTIONS[self.setting.phase]
        found = [(call.piece, action) for call in made]
        found += [(call.piece, REPLAY) for call in made if call.again and self._trains]
        return list(dict.fromkeys(found))

    def _call(self, call: Call, far: float, entries: Mapping[Action, Entry], empty: Action) -> float:
        """Milliseconds of one call, and of its repetition in the backward pass if there is one."""
        if call.piece.is_model:
            return entries[call.piece, empty[1]].milliseconds
        done = [empty[1], REPLAY] if call.again and self._trains else [empty[1]]
        times = (entries[call.piece, action] for action in done)
        added = entries[empty].repeated
        return sum(far * each.milliseconds + (1 - far) * each.repeated - added for each in times)

    def _pieces(self, actions: Sequence[Action]) -> dict[Action, Entry]:
        """The time of every piece. Missing ones are measured in turns, together with others if they are few."""
        known = {each: self.table.piece(self._key(each)) for each in actions}
        missing = [each for each in actions if known[each] is None]
        if missing:
            company = [each for each in actions if known[each] is not None][: max(0, COMPANY - len(missing))]
            found = self._measure([each for each in actions if each in {*missing, *company}])
            self.table.keep_pieces({self._key(each): found[each] for each in missing})
            known |= {each: found[each] for each in missing}
        return {each: entry for each, entry in known.items() if entry is not None}

    def _measure(self, actions: Sequence[Action]) -> dict[Action, Entry]:
        where = resolve(self.setting.device)
        alone = turned_into(CannotCompose, "a piece does not run alone")
        with alone, runs.on_threads(self.setting.threads), runs.seeded(where), garbage.little_garbage():
            made = {each: tuple(bench.run(*each, self.setting, where) for _ in range(2)) for each in actions}
            return self._timed(made, where)

    def _timed(self, made: Mapping[Any, tuple[Run, ...]], where: torch.device) -> dict[Any, Entry]:
        """Time everything in `made`: for each key a run and a copy of it."""
        rows = {each: served.by(copies[0]) for each, copies in made.items()}
        named = {f"{place}/{n}": run for place, copies in enumerate(made.values()) for n, run in enumerate(copies)}
        same = gauge(where)
        found = measure(
            {GAUGE: same, **{name: run.call for name, run in named.items()}},
            prepare={GAUGE: same, **{name: run.prepare for name, run in named.items()}, **_after_a_copy(made.values())},
            warmup=WARMUP,
            repeats=REPEATS,
            budget_seconds=SECONDS,
            clock=clock(self.setting),
        )
        factor = slowed(found[GAUGE].median / self.table.quiet)
        entries = {}
        for place, (each, copies) in enumerate(made.items()):
            first, last = found[f"{place}/0"], found[f"{place}/{len(copies) - 1}"]
            details = {"repeated": last.median / factor}
            entries[each] = Entry(first.median / factor, first.low / factor, first.high, rows[each], details)
        return entries

    def _update(self, model: Configured) -> Entry:
        """The optimiser's step over the parameters of a model."""
        shapes = shapes_of(model)
        key = problem(self.setting, action="update", shapes=sorted(Counter(map(str, shapes)).items()))
        known = self.table.piece(key)
        if known is None:
            where = resolve(self.setting.device)
            with runs.on_threads(self.setting.threads):
                known = self._timed({key: (bench.update(shapes, where),)}, where)[key]
            self.table.keep_pieces({key: known})
        return known

    def _key(self, action: Action) -> str:
        piece, done = action
        return problem(replace(self.setting, length=piece.length), action=done, piece=piece.text())


@contextmanager
def turned_into(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise `kind` for every error inside the block, except those after which the device cannot be trusted."""
    try:
        yield
    except Exception as error:
        if poisons(error):
            raise
        raise kind(f"{what}: {type(error).__name__}: {error}") from error


def shapes_of(model: Configured) -> list[tuple[int, ...]]:
    """The shapes of all parameters. A model that cannot be built without memory is built with it."""
    try:
        with torch.device("meta"):
            module = model.build()
    except Exception:
        module = model.build()
    return [tuple(each.shape) for each in module.parameters()]


def _after_a_copy(made: Iterable[tuple[Run, ...]]) -> dict[str, Callable[[], object]]:
    """What to run before each second copy: the first copy, then the preparation of the second."""

    def prepared(first: Run, second: Run) -> Callable[[], object]:
        def prepare() -> None:
            first.prepare()
            first.call()
            second.prepare()

        return prepare

    return {f"{place}/1": prepared(*copies) for place, copies in enumerate(made) if len(copies) > 1}


def apart(made: Sequence[Call]) -> list[float]:
    """For each call, in a model that runs repeatedly, the distance from the last call of the same piece: 0 right after
    it, 1 if at least KINDS kinds of other blocks ran in between.
    """
    found = []
    for place, call in enumerate(made):
        kinds: set[str] = set()
        for back in range(1, len(made)):
            other = made[place - back].piece
            if other == call.piece or len(kinds) == KINDS:
                break
            if other.block.type.name != call.piece.block.type.name:
                kinds.add(other.block.type.name)
        found.append(len(kinds) / KINDS)
    return found
