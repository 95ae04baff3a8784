"""What a search has spent of its budget, read only from its database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.report.tables import duration, short
from nas.store.records import SEARCH

if TYPE_CHECKING:
    from nas.store import Reader, Study

LABELS = {
    "trials": "trials",
    "steps": "steps",
    "tokens": "tokens",
    "flops": "FLOPs",
    "device_seconds": "device-seconds",
}


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a search has spent of its budget.

    spent: trials that were started, and steps, tokens, FLOPs and device-seconds of the units that ended; None if that
    is not known. planned: the limits of the budget, by name. trained_seconds: of all
    units that ended, including those of the finals.
    """

    spent: dict[str, float | None]
    planned: dict[str, float]
    trained_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {name: {"spent": value, "planned": self.planned.get(name)} for name, value in self.spent.items()}

    def to_text(self) -> str:
        """The limits of the budget as text: 12 of 27 trials, 3.1M of 50M tokens."""
        return ", ".join(_part(name, self.spent[name], limit) for name, limit in self.planned.items())

    @property
    def share(self) -> float | None:
        """The largest share of a limit on training that is spent; None if there is no such limit, or it is unknown."""
        found = [(self.spent[name], limit) for name, limit in self.planned.items() if name != "trials"]
        known = [spent / limit for spent, limit in found if spent is not None]
        return max(known, default=None)


def amount(name: str, value: float) -> str:
    """A limit as text: 27 trials, 50M tokens, 3e+15 FLOPs, 1.0 h of device time."""
    if name == "device_seconds":
        return f"{duration(value)} of device time"
    return f"{_number(name, value)} {LABELS[name]}"


def spending(store: Reader, study: Study, trials: int | None = None) -> Spending:
    """What the search of `study` has spent of its budget. trials: of the search; None counts them."""
    budget, step_tokens = study.config.get("budget", {}), study.config.get("step_tokens")
    trained = store.trained(study.id)
    spent = {
        "trials": _searched(store, study) if trials is None else trials,
        "steps": trained.steps,
        "tokens": None if step_tokens is None else trained.steps * step_tokens,
        "flops": trained.flops,
        "device_seconds": trained.device_seconds,
    }
    planned = {name: budget[name] for name in LABELS if budget.get(name) is not None}
    return Spending(spent=spent, planned=planned, trained_seconds=trained.all_seconds)


def _searched(store: Reader, study: Study) -> int:
    return sum(count.trials for count in store.counts(study.id) if count.purpose == SEARCH)


def _part(name: str, spent: float | None, limit: float) -> str:
    if name == "device_seconds" and spent is not None:
        return f"{duration(spent)} of {amount(name, limit)}"
    return f"{'?' if spent is None else _number(name, spent)} of {amount(name, limit)}"


def _number(name: str, value: float) -> str:
    return f"{value:.3g}" if name == "flops" else short(value)
