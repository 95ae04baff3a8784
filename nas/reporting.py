"""What a person sees while a search runs: a live line on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from nas.store import Store, Study, TrialState, Unit
from nas.work import Failure, Outcome, Progress

LINE_SECONDS = 15.0  # between two plain lines about the running units


@dataclass
class Reporter:
    """Tells how a search goes. `budget` is the number of trials it will have; counts come from the store."""

    store: Store
    study: Study
    budget: int
    objective: str
    maximize: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    quiet: bool = False

    def __post_init__(self) -> None:
        self._console = Console(file=self.stream, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._began, self._last, self._ended = time.monotonic(), 0.0, 0
        self._best: float | None = None
        self._failed = 0

    def __enter__(self) -> Reporter:
        if self._console.is_terminal and not self.quiet:
            self._live = Live(Text(""), console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """One line for people."""
        if not self.quiet:
            self._console.print(text, markup=False)

    def ended(self, unit: Unit, values: Mapping[str, float], failure: Failure | None, outcome: Outcome) -> None:
        """A unit ended."""
        self._ended += 1
        name = f"trial {unit.number}" + (
            f" rung {unit.rung}" if unit.purpose == "search" else f" (final, seed {unit.seed})"
        )
        if failure is not None:
            self._failed += 1
            self.say(f"{name}: {failure.kind}: {_first_line(failure.message)}")
            return
        value = values.get(self.objective)
        if value is not None and (self._best is None or (value > self._best if self.maximize else value < self._best)):
            self._best = value
        if unit.purpose == "final" or not self._live:
            scores = ", ".join(f"{key} {short(value)}" for key, value in values.items())
            self.say(f"{name}: {scores} ({outcome.seconds:.1f} s)")

    def tick(self, progress: Mapping[tuple[int, int], Progress]) -> None:
        """Called often; says something when it is time."""
        now = time.monotonic()
        if now - self._last < (0.5 if self._live else LINE_SECONDS):
            return
        self._last = now
        if self._live:
            self._live.update(Text("\n".join(self._lines(progress))))
        elif not self.quiet:
            for line in self._lines(progress):
                self.say(line)

    def _lines(self, progress: Mapping[tuple[int, int], Progress]) -> list[str]:
        counts = dict.fromkeys(TrialState, 0)
        for count in self.store.counts(self.study.id):
            if count.purpose == "search":
                counts[count.state] += count.trials
        tried = sum(counts.values())
        best = "-" if self._best is None else short(self._best)
        minutes = (time.monotonic() - self._began) / 60
        rate = self._ended / minutes if minutes > 0 else 0.0
        head = (
            f"{tried}/{self.budget} trials: {counts[TrialState.COMPLETE]} done, {counts[TrialState.RUNNING]} open, "
            f"{counts[TrialState.FAILED]} failed | best {self.objective} {best} | {rate:.1f} units/min"
            f"{self._eta(tried)}"
        )
        return [head, *(_running(key, each) for key, each in sorted(progress.items()))]

    def _eta(self, tried: int) -> str:
        """Time left, from the rate so far: a guess, as later rungs take longer."""
        elapsed = time.monotonic() - self._began
        if not self._ended or tried >= self.budget or elapsed < 5:
            return ""
        left = elapsed / self._ended * (self.budget - tried)
        return f" | about {left / 60:.0f} min for new trials" if left >= 90 else f" | about {left:.0f} s for new trials"


def _running(key: tuple[int, int], progress: Progress) -> str:
    trial, rung = key
    return (
        f"  trial {trial} rung {rung}: step {progress.step}/{progress.steps}, loss {progress.loss:.3f}, "
        f"{progress.tokens_per_second:,.0f} tokens/s"
    )


def _first_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""


def short(value: float) -> str:
    """A number as people read it: 2.413, 38.1M, 0.00031."""
    size = abs(value)
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= factor:
            return f"{value / (factor if unit != 'k' else 1e3):.3g}{unit}"
    return f"{value:.4g}"
