"""Predicts the latency of an architecture as the sum of its pieces.

The missing pieces of an architecture are timed in a short model of their own: one after another, in the order of the
architecture (`nas.latency.chain`). So each finds the caches as it would in the model. The first call of a piece and the
later ones have times of their own. The time of an empty piece is subtracted from every call: it is the cost of timing
alone. A training step adds the optimiser's step, which follows from the sizes of the parameters.

The sums share a systematic error, which `nas.latency.calibration` corrects.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from nas.latency import bench, runs, served
from nas.latency.bench import Action
from nas.latency.calibration import CONFIDENCE, CrossCheck
from nas.latency.chain import Link, Times, shortened, timed
from nas.latency.gauge import gauge
from nas.latency.measured import PREDICTED, CannotRun, PhaseLatency, clock, latency
from nas.latency.optimiser import Optimiser
from nas.latency.pieces import NOTHING, NOWHERE, CannotCompose, Piece, calls, in_evaluation
from nas.latency.runs import Setting
from nas.latency.table import Entry, Table, piece_problem
from searchspace.model.architecture import Architecture
from tuner.device import resolve
from tuner.measure import garbage
from tuner.outcome import poisons

SECONDS, PIECES_SECONDS = 20.0, 20.0  # to measure an architecture, and the missing pieces of one
ATTEMPTS, PAUSE = 3, 1.0  # measurements of an architecture while the machine is loaded; seconds before the second
EMPTY = Piece(NOTHING, 1, 1, NOWHERE)


@dataclass(frozen=True)
class Sum:
    """The milliseconds of all pieces of an architecture, and the choices that serve them."""

    milliseconds: float
    served: served.Rows


class Predictor:
    """Predicts latencies in a setting from a table of pieces, and measures the missing pieces.

    load: measurements of whole architectures above this load are repeated. extras: they include memory, and energy if
    the device reports it.
    """

    def __init__(self, table: Table, setting: Setting, load: float = math.inf, extras: bool = False) -> None:
        self.table, self.setting, self.load, self.extras = table, setting, load, extras
        self.optimiser = Optimiser(table, setting)

    def check(self, architectures: Iterable[Architecture]) -> CrossCheck:
        """Measure each architecture as a whole and as a sum and store both; skip one without a sum."""
        ratios, sums = [], {}
        for each in architectures:
            try:
                whole, parts = self.measured(each), self.sum(each)
            except (CannotCompose, CannotRun):
                continue
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

        A measurement above the load is repeated after a pause, and when it is needed again; the quietest one counts.
        Raises CannotRun if the architecture does not run in this setting.
        """
        known = self.table.model(architecture.hash, self.setting)
        if self.extras and known is not None and known.peak_bytes is None:
            known = None
        for attempt in range(ATTEMPTS if known is None else 1):
            if known is not None and (known.load or 1.0) <= self.load:
                break
            if attempt:
                time.sleep(PAUSE * attempt)
            quiet = self.table.quiet
            with turned_into(CannotRun, "it does not run"):
                found = latency(
                    architecture.configured, self.setting, quiet=quiet, budget_seconds=SECONDS, extras=self.extras
                )
            if known is None or (found.load or 1.0) < (known.load or 1.0):
                known = found
                self.table.keep_model(architecture.hash, self.setting, known)
        assert known is not None
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
        model = architecture.configured if self._trains else in_evaluation(architecture.configured)
        setting = self.setting
        made = calls(model, setting.length, streaming=setting.phase == "decode", depth=setting.depth)
        hot = bench.is_hot(made, setting.phase)
        actions = bench.actions(made, setting.phase, hot)
        empty = self._empty(setting.length, model.config.width)._replace(hot=hot)
        found = self._pieces([empty, empty, *actions])  # the second one follows another, as pieces do
        total = self._together(actions, found, found[empty].repeated)
        if self._trains:
            total += self.optimiser.milliseconds(
                size
                for call, action in zip(made, actions, strict=True)
                if call.fresh
                for size in found[action].elements
            )
        if total <= 0:  # pieces as short as the cost of timing them
            raise CannotCompose("its pieces are too short to be timed.")
        return Sum(total, served.together(*(entry.served for entry in found.values())))

    @property
    def _trains(self) -> bool:
        return self.setting.phase == "train"

    def _empty(self, length: int, width: int) -> Action:
        return Action(replace(EMPTY, length=length, width=width), bench.ACTIONS[self.setting.phase])

    def _together(self, actions: Sequence[Action], found: Mapping[Action, Entry], empty: float) -> float:
        """Milliseconds of all calls. The whole model is timed once, so one empty time belongs to it."""
        total, seen = empty, set()
        for action in actions:
            entry = found[action]
            total += (entry.repeated if action in seen else entry.milliseconds) - empty
            seen.add(action)
        return total

    def _pieces(self, actions: Sequence[Action]) -> dict[Action, Entry]:
        """The times of all actions. Missing ones are measured together with known ones, in the order of the model."""
        keys = {each: self._key(each) for each in dict.fromkeys(actions)}
        known = {each: entry for each, key in keys.items() if (entry := self.table.piece(key)) is not None}
        if missing := keys.keys() - known.keys():
            first = {action._replace(reused=False) for action in missing}  # before their weights are used again
            found = self._measure(around(shortened(actions), missing | first))
            self.table.keep_pieces({keys[each]: found[each] for each in found if each in missing})
            known |= {each: found[each] for each in missing}
        return known

    def _measure(self, actions: Sequence[Action]) -> dict[Action, Entry]:
        where = resolve(self.setting.device)
        alone = turned_into(CannotCompose, "a piece does not run alone")
        with alone, runs.on_threads(self.setting.threads), runs.seeded(where), garbage.little_garbage():
            first = {link.key: link.run for link in reversed(self._links(actions, where))}
            rows = {each: served.by(first[each]) for each in dict.fromkeys(actions)}
            times = timed(
                lambda: self._links(actions, where),
                clock(self.setting),
                gauge=gauge(where),
                quiet=self.table.quiet,
                seconds=PIECES_SECONDS,
                warm=self.setting.warm,
            )
        return {each: self._entry(each, times[each], rows[each]) for each in rows}

    def _links(self, actions: Sequence[Action], where: torch.device) -> list[Link]:
        """The runs of the actions, in order, and an empty one.

        The first backward pass after all forwards takes longer. In a model only one is the first: here the empty one.
        """
        weights = bench.Weights(where)
        links = [Link(each, bench.run(each, self.setting, where, weights)) for each in actions]
        return [*links, Link(None, bench.run(self._empty(1, 1), self.setting, where))]

    def _entry(self, action: Action, found: Times, rows: served.Rows) -> Entry:
        details: dict[str, Any] = {"repeated": found.later.median}
        if self._trains:
            details["elements"] = list(bench.elements(action.piece))
        first = found.first
        return Entry(first.median, first.low, first.high, rows, details)

    def _key(self, action: Action) -> str:
        return piece_problem(self.setting, action)


def around(actions: Sequence[Action], missing: Collection[Action]) -> list[Action]:
    """The missing actions with those right before and after each, in order."""
    found = []
    for place, action in enumerate(actions):
        if any(each in missing for each in actions[max(0, place - 1) : place + 2]):
            found.append(action)
    return found


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
