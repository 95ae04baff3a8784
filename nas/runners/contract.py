"""The contract of a runner: units of work go in, outcomes come out, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nas.work import Outcome, Progress, Work


class Runner(Protocol):
    """`workers` units run at once; `capacity` may be submitted and not yet collected, so that no worker idles."""

    workers: int
    capacity: int

    def submit(self, work: Work) -> None: ...

    def wait(self, timeout: float) -> list[Outcome]:
        """The outcomes that have come in, at once if there are any, else after at most `timeout` seconds."""

    def progress(self) -> Mapping[tuple[int, int], Progress]:
        """How far the running units are, by (trial, rung), where it is known."""

    def stop_soon(self) -> None:
        """Called from a signal handler, so it only takes note: a unit in this process saves itself at its next step."""

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Stop what runs: units save where they are, within `seconds`. Gives the outcomes that were ready."""

    def close(self) -> None: ...
