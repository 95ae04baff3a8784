"""The log of a study: its trials in the order of their numbers, and its results in the order in which units ended.

A search reads it to rebuild its state. The light form leaves out what it seldom needs: the text of the architectures,
which is in another place of the database, and choices that it has read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Select, bindparam, case, null, select, type_coerce

from nas.numbers import FIRST_FINAL
from nas.store.models import architecture, trial, unit
from nas.store.queries import next_number, read_values, select_values
from nas.store.records import Trial, TrialState, Unit, UnitKind, UnitState
from nas.store.types import LaterDocument

ALL = 2**62  # more rows than there are
_OF_UNIT = ("id", "study_id", "kind", "state", "sequence", "trial_id", "rung", "steps", "error_kind", "seconds")
_OF_TRIAL = ("number", "arm", "purpose", "seed", "architecture_hash", "step_flops", "space_version")
_OF_START = ("id", "place", "operator", "state", "known_results", "known_trials", *_OF_TRIAL)
_CHOICES = type_coerce(trial.c.choices, LaterDocument())


def _results(*columns: Any) -> Select:
    return (
        select(
            *unit.c[*_OF_UNIT],
            *trial.c[*_OF_TRIAL],
            *columns,
        )
        .join(trial, trial.c.id == unit.c.trial_id)
        .where(unit.c.study_id == bindparam("study"), unit.c.sequence > bindparam("sequence"))
        .order_by(unit.c.sequence)
        .limit(bindparam("most"))
    )


# The loop of a search asks these after every trial. They are built once: building one costs more than running it.
_WHOLE_RESULTS = _results(trial.c.choices, trial.c.cheap_values, architecture.c.text.label("architecture")).join(
    architecture, architecture.c.hash == trial.c.architecture_hash
)
_LIGHT_RESULTS = _results(case((unit.c.rung > 0, _CHOICES), else_=null()).label("choices"))
_STARTED = (
    select(*trial.c[*_OF_START], _CHOICES.label("choices"))
    .where(trial.c.study_id == bindparam("study"), trial.c.number >= bindparam("number"))
    .where(trial.c.number < FIRST_FINAL)  # the strategy knows nothing of the finals
    .order_by(trial.c.number)
    .limit(bindparam("most"))
)
_VALUES = select_values(
    select(unit.c.id).where(
        unit.c.study_id == bindparam("study"),
        unit.c.sequence.between(bindparam("sequence") + 1, bindparam("last")),
    )
)


def results_since(
    connection: Connection, study_id: int, sequence: int = 0, limit: int | None = None, *, light: bool = False
) -> list[Unit]:
    """The units that ended after place `sequence` (which counts from 1), in order, without a gap.

    light: without their architectures, and those of rung 0 without their choices, which their trials have.
    """
    asked = {"study": study_id, "sequence": sequence}
    statement = _LIGHT_RESULTS if light else _WHOLE_RESULTS
    rows = _rows(connection.execute(statement, asked | {"most": ALL if limit is None else limit}))
    if not rows:
        return []
    # No transaction adds a unit before one that is read: the order is that of the commits.
    values = read_values(connection, _VALUES, asked | {"last": rows[-1]["sequence"]})
    return [_unit(fields, values) for fields in rows]


def since(
    connection: Connection, study_id: int, number: int, sequence: int, limit: int
) -> tuple[list[Trial], list[Unit]]:
    """The trials of the search from `number` on and the units that ended after place `sequence`, at most `limit` of
    each; light.

    The trials have neither values nor a rung. They are read first, so the units include everything that was known to
    the process that added them.
    """
    new = next_number(connection, study_id) > number  # mostly there is none
    asked = {"study": study_id, "number": number, "most": limit}
    trials = [_trial(fields) for fields in _rows(connection.execute(_STARTED, asked))] if new else []
    return trials, results_since(connection, study_id, sequence, limit, light=True)


def _rows(found: CursorResult) -> list[dict[str, Any]]:
    names = tuple(found.keys())
    return [dict(zip(names, row)) for row in found.all()]


_Record = TypeVar("_Record", Unit, Trial)
# Fields that are neither read nor have a default in their class.
_OTHERS_OF_UNIT: dict[str, Any] = {"cheap_values": {}}
_OTHERS_OF_TRIAL: dict[str, Any] = {"rung": None, "values": {}, "cheap_values": {}}
_KINDS = {kind.value: kind for kind in UnitKind}
_UNIT_STATES = {state.value: state for state in UnitState}
_TRIAL_STATES = {state.value: state for state in TrialState}


def _unit(fields: dict[str, Any], values: Mapping[int, Mapping[str, float]]) -> Unit:
    fields["kind"], fields["state"] = _KINDS[fields["kind"]], _UNIT_STATES[fields["state"]]
    fields["values"] = values[fields["id"]] if fields["state"] is UnitState.DONE else None
    return _record(Unit, _OTHERS_OF_UNIT | fields)


def _trial(fields: dict[str, Any]) -> Trial:
    fields["state"] = _TRIAL_STATES[fields["state"]]
    return _record(Trial, _OTHERS_OF_TRIAL | fields)


def _record(kind: type[_Record], fields: dict[str, Any]) -> _Record:
    """One of perhaps a hundred thousand records: a constructor that sets field by field takes ten times as long.

    Fields that are missing have the default that their class has.
    """
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", fields)
    return made
