"""All trials of a study in columns of numbers, so that pages about 100,000 trials are fast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas import pareto
from nas.numbers import FIRST_FINAL, final_of
from nas.report.trials import BASELINE, TRAINED
from nas.store.records import FINAL, MAIN, SEARCH

if TYPE_CHECKING:
    from nas.store import Mark, Reader, Study
    from nas.store.summaries.columns import Columns

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
_TEXTS = ("state", "arm", "purpose", "operator", "error_kind", "hash")
_INTEGERS = {"number": -1, "rung": -1, "steps": 0, "sequence": 0}
COSTS = ("parameters", "step_flops")  # of each trial, in addition to the objectives
_FLOATS = ("parameters", "step_flops", "created_at", "finished_at")


@dataclass(frozen=True)
class Tabulated:
    """The trials of a study, sorted by number. All columns are [N]; row i is one trial.

    An unknown number is NaN, an unknown rung -1. texts: state, arm, purpose, operator, error_kind and hash. values: the
    objectives. seconds: the time of all units. signs: 1 if an objective is minimised, -1 if it is maximised.
    """

    number: NDArray[np.int64]
    rung: NDArray[np.int64]
    steps: NDArray[np.int64]
    sequence: NDArray[np.int64]
    texts: dict[str, NDArray[Any]]
    numbers: dict[str, Numbers]
    values: dict[str, Numbers]
    seconds: Numbers
    signs: dict[str, int]
    _memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.number)

    @cached_property
    def searched(self) -> Mask:
        """The trials of the search that have a value in every objective that the study declares."""
        known = np.isin(self.texts["state"], [state.value for state in TRAINED]) & (self.texts["purpose"] == SEARCH)
        for name in self.signs:
            known &= np.isfinite(self.values[name])
        return known

    @cached_property
    def longest(self) -> Mask:
        """The trials of `searched` with the most training steps: their values can be compared."""
        found = self.searched
        return found & (self.steps == self.steps[found].max()) if found.any() else found

    @cached_property
    def baselines(self) -> Mask:
        """The baselines of the search file."""
        return self.texts["operator"] == BASELINE

    @cached_property
    def controls(self) -> Mask:
        """The trials of the search that belong to a control arm."""
        return (self.texts["arm"] != MAIN) & (self.texts["purpose"] == SEARCH)

    def words(self, name: str) -> list[str]:
        """The distinct non-empty texts of a column, sorted."""
        found: list[str] = self.remember(("words", name), lambda: sorted(set(filter(None, self.texts[name].tolist()))))
        return found

    def column(self, name: str) -> Numbers:
        """An objective, or a cost of every trial; [N]. Raises KeyError if the name is unknown."""
        return self.values[name] if name in self.values else self.numbers[name]

    @cached_property
    def quantities(self) -> list[str]:
        """The quantities for axes: the objectives, then the costs that every trial of the search has."""
        found = self.searched
        return [*self.signs, *(name for name in COSTS if name not in self.signs and self._is_known(name, found))]

    def _is_known(self, name: str, rows: Mask) -> bool:
        return bool(rows.any()) and bool(np.isfinite(self.numbers[name][rows]).all())

    def minimised(self, names: Sequence[str], rows: Mask | NDArray[np.int64]) -> Numbers:
        """The objectives or costs `names` of these rows, with signs such that all are minimised; [N, M]."""
        return np.stack([self.signs.get(name, 1) * self.column(name)[rows] for name in names], axis=1)

    def front(self, names: Sequence[str], among: Mask | None = None) -> NDArray[np.int64]:
        """The rows on the Pareto front of these quantities, among `longest` or among the mask `among`."""
        rows = np.flatnonzero(self.longest if among is None else among)
        rows = rows[np.isfinite(self.minimised(names, rows)).all(axis=1)]  # a rescored objective may lack values
        return rows[pareto.front(self.minimised(names, rows))] if len(rows) else rows

    def rows_of(self, numbers: Iterable[int]) -> NDArray[np.int64]:
        """The rows of the trials with these numbers; numbers without a trial are left out."""
        wanted = np.fromiter(numbers, dtype=np.int64)
        places = np.searchsorted(self.number, wanted)
        inside = places < len(self)
        return places[inside][self.number[places[inside]] == wanted[inside]]

    def row(self, index: int) -> dict[str, Any]:
        """A row as plain data, with the same names as `trials.row`."""
        rung = int(self.rung[index])
        return {
            "trial": int(self.number[index]),
            "final": final_of(int(self.number[index])),
            "parameters": _plain(self.numbers["parameters"][index]),
            **{name: _plain(self.values[name][index]) for name in self.values},  # one may be named parameters
            "rung": None if rung < 0 else rung,
            "state": str(self.texts["state"][index]),
            "architecture": str(self.texts["hash"][index]),
            "steps": int(self.steps[index]) if rung >= 0 else None,
            "arm": str(self.texts["arm"][index]),
            "purpose": str(self.texts["purpose"][index]),
            "operator": str(self.texts["operator"][index]),
            "seconds": _plain(self.seconds[index]),
            "failure": str(self.texts["error_kind"][index] or ""),
        }

    def only(self, rows: Mask | NDArray[np.int64]) -> Tabulated:
        """The table of these rows, in this order."""
        return Tabulated(
            **{name: getattr(self, name)[rows] for name in _INTEGERS},
            texts={name: column[rows] for name, column in self.texts.items()},
            numbers={name: column[rows] for name, column in self.numbers.items()},
            values={name: column[rows] for name, column in self.values.items()},
            seconds=self.seconds[rows],
            signs=self.signs,
        )

    def remember(self, key: Any, compute: Any) -> Any:
        """The result of `compute()`, computed once for this table."""
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]


AT_ONCE = 10_000  # trials that are read in one transaction: all rows of a large study would need 200 MB


def tabulated(store: Reader, study: Study, before: Tabulated | None = None, since: Mark | None = None) -> Tabulated:
    """The trials of `study` in columns. before, since: an earlier table, and the mark that was taken before it, so that
    only changed trials are read.
    """
    if before is not None and since is not None:
        changed = _of(store.changed_columns(study.id, since), study)
        return _joined(before, changed) if len(changed) else before
    search = range(0, max(store.next_number(study.id), 1), AT_ONCE)
    finals = range(FIRST_FINAL, store.next_number(study.id, FINAL), AT_ONCE)
    parts = [_of(store.columns(study.id, first, AT_ONCE), study) for first in (*search, *finals)]
    return parts[0] if len(parts) == 1 else _concatenated(parts)


def _of(found: Columns, study: Study) -> Tabulated:
    columns = dict(zip(found.names, zip(*found.rows))) if found.rows else dict.fromkeys(found.names, ())
    number = np.asarray(columns["number"], dtype=np.int64)
    order = np.argsort(number, kind="stable")
    signs = {each["name"]: -1 if each["direction"].startswith("max") else 1 for each in study.objectives}
    names = dict.fromkeys([*signs, *(name for _, name, _ in found.values)])
    whole: dict[str, Any] = {
        name: np.asarray([missing if value is None else value for value in columns[name]], dtype=np.int64)[order]
        for name, missing in _INTEGERS.items()
    }
    return Tabulated(
        **whole,
        texts={name: _texts(columns[name], order) for name in _TEXTS},
        numbers={name: np.asarray(columns[name], dtype=np.float64)[order] for name in _FLOATS},
        values=_values(number[order], found.values, names),
        seconds=_placed(number[order], found.seconds, 0.0),
        signs=signs,
    )


def _texts(values: Sequence[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    kept: dict[Any, Any] = {}
    made = np.empty(len(values), dtype=object)
    made[:] = [kept.setdefault(value, value) for value in values]  # equal texts are one object
    return made[order]


def _values(number: Any, found: list[tuple[int, str, float]], names: Iterable[str]) -> dict[str, Numbers]:
    by_name: dict[str, list[tuple[int, float | None]]] = {name: [] for name in names}
    for of, name, value in found:
        by_name[name].append((of, value))
    return {name: _placed(number, pairs, np.nan) for name, pairs in by_name.items()}


def _placed(number: Any, pairs: Sequence[tuple[int, float | None]], missing: float) -> Numbers:
    """A column with these values at the rows of their trials."""
    column = np.full(len(number), missing)
    if pairs:
        of, values = zip(*pairs)
        column[np.searchsorted(number, of)] = [missing if value is None else value for value in values]
    return column


def _joined(old: Tabulated, new: Tabulated) -> Tabulated:
    """The rows of `old` and `new`. If both have a trial, the row of `new` counts."""
    stays = ~np.isin(old.number, new.number)
    order = np.argsort(np.concatenate([old.number[stays], new.number]), kind="stable")
    return _concatenated([old.only(stays), new]).only(order)


def _concatenated(parts: Sequence[Tabulated]) -> Tabulated:
    """The rows of all parts in order. An objective that a part does not have is NaN there."""
    names = dict.fromkeys(name for part in parts for name in part.values)

    def whole(columns: Iterable[Any]) -> Any:
        return np.concatenate(list(columns))

    def value(part: Tabulated, name: str) -> Numbers:
        return part.values[name] if name in part.values else np.full(len(part), np.nan)

    return Tabulated(
        **{name: whole(getattr(part, name) for part in parts) for name in _INTEGERS},
        texts={name: whole(part.texts[name] for part in parts) for name in _TEXTS},
        numbers={name: whole(part.numbers[name] for part in parts) for name in _FLOATS},
        values={name: whole(value(part, name) for part in parts) for name in names},
        seconds=whole(part.seconds for part in parts),
        signs=parts[-1].signs,
    )


def _plain(value: Any) -> float | None:
    found = float(value)
    return found if np.isfinite(found) else None
