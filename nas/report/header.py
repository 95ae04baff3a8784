"""The head of a result: trials started and planned, failures, seeds, what the budget cut off, and the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.report.control import KEPT
from nas.report.data import data_lines
from nas.report.spending import Spending, amount, spending
from nas.store.records import FINAL, SEARCH
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, Study
    from nas.store.records import Failed

LISTED = 5  # trials that are named for each kind of failure
NOTHING_LEFT = {"space": "; the space has no other architecture", "strategy": "; the strategy proposed nothing more"}
MACHINE = ("minutes", "device_seconds")  # how much fits into these depends on the machine


@dataclass(frozen=True, kw_only=True)
class Header:
    """The head of a result.

    failures, final_failures: the numbers of the failed trials, or of the failed runs of the finals, by kind. data: the
    facts about the data from `Task.data_facts`; None if it has none. cut_off: a sentence about what
    the budget cut off; None if it cut off nothing. ending: as `nas.engine.ending` stores it; None while the search
    runs.
    """

    spending: Spending
    failures: dict[str, tuple[int, ...]]
    final_runs: int
    final_failures: dict[str, tuple[int, ...]]
    seed: int
    final_seeds: tuple[int, ...]
    ending: Mapping[str, Any] | None
    cut_off: str | None
    data: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "spending": self.spending.to_dict(),
            "failures": {kind: list(numbers) for kind, numbers in self.failures.items()},
            "final_runs": self.final_runs,
            "final_failures": {kind: list(numbers) for kind, numbers in self.final_failures.items()},
            "seed": self.seed,
            "final_seeds": list(self.final_seeds),
            "ending": self.ending and dict(self.ending),
            "cut_off": self.cut_off,
            "data": self.data and dict(self.data),
            "reproducible": not self.cut_off or (self.ending or {}).get("limit") not in MACHINE,
        }

    def to_text(self) -> str:
        """One subject a line."""
        return "\n".join(f"{name:<10}{text}" for name, text in self.lines())

    def lines(self) -> list[tuple[str, str]]:
        """(subject, text) of each line, in order."""
        found = [("trials", f"{self._started()} started{self._exhausted()}; {_failed(self.failures, 'trial')}")]
        if set(self.spending.planned) - {"trials"}:
            found.append(("spent", self.spending.to_text()))
        if self.final_runs:
            found.append(("finals", f"{plural(self.final_runs, 'run')}; {_failed(self.final_failures, 'final')}"))
        found.append(("seeds", self._seeds()))
        if self.cut_off:
            found.append(("cut off", self.cut_off))
        return [*found, *data_lines(self.data)]

    def _started(self) -> str:
        planned = self.spending.planned.get("trials")
        return f"{self.spending.spent['trials']}" + (f" of {planned} planned" if planned else "")

    def _exhausted(self) -> str:
        """Why fewer trials were started than planned, if there was nothing left to propose."""
        return NOTHING_LEFT.get((self.ending or {}).get("limit", ""), "")

    def _seeds(self) -> str:
        finals = f", finals {', '.join(map(str, self.final_seeds))}" if self.final_seeds else ""
        return f"search {self.seed}{finals}"


def header(store: Reader, study: Study, trials: int | None = None, failed: Sequence[Failed] | None = None) -> Header:
    """The head of the result of `study`. Read the study again after its search, so that it has its ending.

    trials: the number in the search; failed: all failed trials; None reads them.
    """
    finals = store.trials(study.id, purposes=(FINAL,), light=True)
    failed = store.failures(study.id) if failed is None else failed
    return Header(
        spending=spending(store, study, trials),
        failures=_by_kind(each for each in failed if each.purpose == SEARCH),
        final_runs=len(finals),
        final_failures=_by_kind(each for each in failed if each.purpose == FINAL),
        seed=study.seed,
        final_seeds=tuple(sorted({trial.seed for trial in finals})),
        ending=study.ending and {key: value for key, value in study.ending.items() if key != KEPT},
        cut_off=cut_off(study.ending, study.config.get("budget", {})),
        data=study.config.get("data_facts"),
    )


def cut_off(ending: Mapping[str, Any] | None, budget: Mapping[str, Any]) -> str | None:
    """A sentence about what the budget cut off; None if it cut off nothing, or the search has not ended."""
    if not ending or ending["limit"] in ("trials", *NOTHING_LEFT) or budget.get(ending["limit"]) is None:
        return None
    limit, value = ending["limit"], budget[ending["limit"]]
    written = f"minutes: {value:g}" if limit == "minutes" else amount(limit, value)
    parts = []
    if ending["not_started"]:
        parts.append(f"{plural(ending['not_started'], 'trial')} not started")
    if ending["not_promoted"]:
        parts.append(f"{plural(ending['not_promoted'], 'trial')} not trained further, although good enough")
    said = f"{written} ended the search" + (f": {', '.join(parts)}" if parts else "")
    if limit in MACHINE:
        said += ". How much fits depends on the machine and its load, so this result cannot be reproduced exactly"
    return said


def _by_kind(failed: Iterable[Failed]) -> dict[str, tuple[int, ...]]:
    kinds: dict[str, list[int]] = {}
    for trial in failed:
        kinds.setdefault(trial.error_kind or "unknown", []).append(trial.final or trial.number)
    return {kind: tuple(numbers) for kind, numbers in sorted(kinds.items(), key=lambda item: -len(item[1]))}


def _failed(failures: Mapping[str, Sequence[int]], word: str) -> str:
    """The failures as text: none failed; or 3 failed: 2 out of memory (trial 4, 7), 1 not finite (trial 9)."""
    if not failures:
        return "none failed"
    kinds = [f"{len(numbers)} {kind} ({word} {_numbers(numbers)})" for kind, numbers in failures.items()]
    return f"{sum(map(len, failures.values()))} failed: {', '.join(kinds)}"


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:LISTED])) + (", ..." if len(numbers) > LISTED else "")
