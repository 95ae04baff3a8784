"""The log of a study: its trials in the order of their numbers, and its results in the order in which units ended.

A search reads it to rebuild its state. The light form leaves out what it seldom needs: the text of the architectures,
which is in another place of the database, and choices that it has read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, bindparam, case, null, select

from nas.store.models import architecture, trial, unit
from nas.store.queries import next_number, read_values, select_values
from nas.store.records import Trial, TrialState, Unit, UnitKind, UnitState

ALL = 2**62  # more rows than there are
_OF_UNIT = ("id", "study_id", "kind", "state", "sequence", "trial_id", "rung", "steps", "error_kind", "seconds")
_OF_TRIAL = ("number", "arm", "purpose", "seed", "architecture_hash", "step_flops", "space_version")
_OF_START = ("id", "place", "operator", "state", "choices", "known_results", "known_trials", *_OF_TRIAL)


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
_LIGHT_RESULTS = _results(case((unit.c.rung > 0, trial.c.choices), else_=null()).label("choices"))
_STARTED = (
    select(*trial.c[*_OF_START])
    .where(trial.c.study_id == bindparam("study"), trial.c.number >= bindparam("number"))
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
    connection: Connection, study_id: int, sequence: int, limit: int | None, light: bool = False
) -> list[Unit]:
    """The units that ended after place `sequence`, in order, without a gap.

    light: without their architectures, and those of rung 0 without their choices, which their trials have.
    """
    asked = {"study": study_id, "sequence": sequence}
    statement = _LIGHT_RESULTS if light else _WHOLE_RESULTS
    found = connection.execute(statement, asked | {"most": ALL if limit is None else limit})
    names, rows = list(found.keys()), found.all()
    if not rows:
        return []
    # No transaction adds a unit before one that is read: the order is that of the commits.
    values = read_values(connection, _VALUES, asked | {"last": rows[-1].sequence})
    return [_unit(dict(zip(names, row)), values) for row in rows]


def since(
    connection: Connection, study_id: int, number: int, sequence: int, limit: int
) -> tuple[list[Trial], list[Unit]]:
    """The trials from `number` on and the units that ended after place `sequence`, at most `limit` of each; light.

    The trials have neither values nor a rung.
    """
    new = next_number(connection, study_id) > number  # mostly there is none
    asked = {"study": study_id, "number": number, "most": limit}
    found = connection.execute(_STARTED, asked).all() if new else ()
    trials = [_trial(dict(zip(_OF_START, row))) for row in found]
    return trials, results_since(connection, study_id, sequence, limit, light=True)


# A hundred thousand records are made at once. To copy the fields of one takes a quarter of the time of its constructor.
_UNIT = vars(Unit(id=0, rung=0, steps=0, state=UnitState.DONE))
_TRIAL = vars(
    Trial(id=0, number=0, purpose="", seed=0, state=TrialState.RUNNING, rung=None, architecture_hash="", values={})
)
_KINDS = {kind.value: kind for kind in UnitKind}


def _unit(fields: dict[str, Any], values: Mapping[int, Mapping[str, float]]) -> Unit:
    fields["kind"], fields["state"] = _KINDS[fields["kind"]], UnitState(fields["state"])
    fields["values"] = values[fields["id"]] if fields["state"] is UnitState.DONE else None
    made = object.__new__(Unit)
    made.__dict__.update(_UNIT, **fields)
    return made


def _trial(fields: dict[str, Any]) -> Trial:
    fields["state"] = TrialState(fields["state"])
    made = object.__new__(Trial)
    made.__dict__.update(_TRIAL, **fields)
    return made
