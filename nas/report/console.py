"""How a running search reports to a person, on stderr: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from nas.errors import StoreError
from nas.numbers import name_of
from nas.report.activity import Activity, UnitProgress, by_trial, progress
from nas.report.bar import Bar, Head, unit_text
from nas.report.forecasts import eta
from nas.report.overview import eta_text
from nas.report.tables import reason, short, visible
from nas.report.trials import best
from nas.store import FINAL, TrialState, UnitKind
from nas.work import Failure, Outcome, Progress

if TYPE_CHECKING:
    from nas.config.schema import SearchConfig
    from nas.store import Reader, Study, Unit

LINE_SECONDS = 15.0  # between two plain lines about the running units
LIVE_SECONDS = 0.5  # between two updates of the live bar
SHARE = 20  # reading the store takes at most 1/20 of the time, even if the study is large


@dataclass
class Reporter:
    """Reports the progress of a search. Counts come from the store. Use it in a `with` statement.

    budget: the number of trials; 0 if another limit ends the search. config: for an estimate of the remaining time;
    None gives no estimate.
    """

    store: Reader
    study: Study
    budget: int
    objective: str
    maximize: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    quiet: bool = False
    config: SearchConfig | None = None

    def __post_init__(self) -> None:
        from rich.console import Console  # a tenth of a second, which commands that only read do without

        self._console = Console(file=self.stream, highlight=False, soft_wrap=True)
        self._bar: Bar | None = None
        self._started = self._last = time.monotonic()
        self._interval = 0.0
        self._ended = 0
        self._best: tuple[int, int, float] | None = None  # steps, rung, value: more steps count more than a value
        self._updating = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Reporter:
        self._recall()
        if self._console.is_terminal and not self.quiet:
            self._bar = Bar(self._console)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread:
            self._thread.join(timeout=5)
        if self._bar:
            self._bar.close()
            self._bar = None

    def watch(self, running: Callable[[], Mapping[tuple[int, int], Progress]]) -> None:
        """Call `tick(running())` from a thread, because a unit in this process keeps the search from calling it."""
        if self.quiet:
            return

        def update() -> None:
            while not self._closed.wait(LIVE_SECONDS):
                with contextlib.suppress(StoreError):  # the search itself meets it too, and reports it
                    self.tick(running())

        self._thread = threading.Thread(target=update, name="progress", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print one line, unless `quiet`."""
        if not self.quiet:
            self._console.print(visible(text), markup=False)

    def ended(self, unit: Unit, values: Mapping[str, float], failure: Failure | None, outcome: Outcome) -> None:
        """Report a unit that ended."""
        self._ended += 1
        if failure is not None:
            self.say(f"{_name(unit)}: {failure.kind}: {reason(failure.message)}")
            return
        if unit.purpose == "search" and self.objective in values and unit.kind is UnitKind.TRAIN:
            self._consider(unit.steps, unit.rung, values[self.objective])
        if unit.purpose == FINAL or not self._bar:
            scores = ", ".join(f"{key} {short(value)}" for key, value in values.items())
            self.say(f"{_name(unit)}: {scores} ({outcome.seconds:.1f} s)")

    def tick(self, running: Mapping[tuple[int, int], Progress]) -> None:
        """Update the bar or print lines if it is time. Call it often. `running`: progress by (trial, rung)."""
        if self.quiet or not self._updating.acquire(blocking=False):
            return
        try:
            self._update(running)
        finally:
            self._updating.release()

    def _update(self, running: Mapping[tuple[int, int], Progress]) -> None:
        now = time.monotonic()
        if now - self._last < max(self._interval, LIVE_SECONDS if self._bar else LINE_SECONDS):
            return
        units = progress(self.store, self.study)
        head = self._head(units)
        self._last = time.monotonic()
        self._interval = SHARE * (self._last - now)
        names = {(unit.number, unit.rung): unit.name for unit in units}
        named = {names.get(key, f"{name_of(key[0])} rung {key[1]}"): each for key, each in sorted(running.items())}
        if self._bar:
            self._bar.update(head, named)
            return
        self.say(head.line)
        for name, each in named.items():
            self.say(f"  {name}: {unit_text(each)}")

    def _recall(self) -> None:
        """Learn the best value that earlier processes found."""
        if self.quiet:
            return
        for found in best(self.store, self.study, self.objective, 1):
            self._consider(found.steps or 0, found.rung or 0, found.values[self.objective])

    def _consider(self, steps: int, rung: int, value: float) -> None:
        sign = 1 if self.maximize else -1
        if self._best is None or (steps, sign * value) > (self._best[0], sign * self._best[2]):
            self._best = steps, rung, value

    def _head(self, units: list[UnitProgress]) -> Head:
        """The line about the search, or about the finals once they have started."""
        counts: dict[str, Counter[TrialState]] = {"search": Counter(), FINAL: Counter()}
        for count in self.store.counts(self.study.id):
            counts[count.purpose][count.state] += count.trials
        return self._finals(counts[FINAL], units) if counts[FINAL] else self._search(counts["search"], units)

    def _search(self, counts: Counter[TrialState], units: list[UnitProgress]) -> Head:
        active = Counter(by_trial(units).values())
        started = counts[TrialState.RUNNING] + counts[TrialState.WAITING]
        said = {
            "done": counts[TrialState.COMPLETE],
            "running": active[Activity.RUNNING],
            "interrupted": active[Activity.INTERRUPTED],
            "paused": max(0, started - active[Activity.RUNNING] - active[Activity.INTERRUPTED]),
            "failed": counts[TrialState.FAILED],
            "stopped": counts[TrialState.STOPPED],
        }
        always = ("done", "running", "failed")
        parts = [", ".join(f"{n} {word}" for word, n in said.items() if n or word in always)]
        if self._best:
            parts.append(f"best {self.objective} {short(self._best[2])} (rung {self._best[1]})")
        parts += [self._rate(), self._eta(units)]
        return Head("trials", counts.total(), self.budget, parts)

    def _finals(self, counts: Counter[TrialState], units: list[UnitProgress]) -> Head:
        ended = counts[TrialState.COMPLETE] + counts[TrialState.FAILED]
        failed = counts[TrialState.FAILED]
        parts = [f"{failed} failed" if failed else "", self._rate(), self._eta(units)]
        return Head("finals", ended, self._final_units(), parts)

    def _final_units(self) -> int:
        from nas.engine.forecast import forecast

        return forecast(self.config).final_units if self.config else 0

    def _eta(self, units: list[UnitProgress]) -> str:
        if self.config is None:
            return ""
        found = eta(self.store, self.study, self.config, units)
        return eta_text(found) if found else ""

    def _rate(self) -> str:
        elapsed = time.monotonic() - self._started
        return f"{self._ended / elapsed * 60:.1f} units/min" if self._ended and elapsed > 0 else ""


def _name(unit: Unit) -> str:
    if unit.final is not None:
        return f"final {unit.final} (seed {unit.seed})"
    return f"trial {unit.number} " + ("probe" if unit.kind is UnitKind.PROBE else f"rung {unit.rung}")
