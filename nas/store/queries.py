"""Reads studies, trials and units: for the search, the commands and the reports."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, false, func, select, union

from nas.errors import UsageError
from nas.metrics import CURVE
from nas.numbers import FIRST_FINAL, LAST, final_of, name_of
from nas.store.models import architecture, metric, objective_value, space_version, study, trial, unit, unit_is_open
from nas.store.records import (
    FINAL,
    MAIN,
    PURPOSES,
    SEARCH,
    Failed,
    Mark,
    SpaceVersion,
    Study,
    Trial,
    TrialCount,
    TrialState,
    Unit,
    UnitKind,
    UnitState,
)

_STUDY = select(*study.c[*Study.__dataclass_fields__])
MOST_IDS = 500  # in one statement
OVERLAP = timedelta(seconds=30)  # a transaction that took its time before a mark may be committed so much later
LIGHT = (  # the columns of a trial that are read for lists; the architecture, the point and long texts are left out
    *("id", "number", "place", "arm", "purpose", "operator", "seed", "state", "rung", "steps", "architecture_hash"),
    *("created_at", "started_at", "finished_at", "error_kind", "parameters", "step_flops", "variant"),
)
_OWN_COLUMNS = [name for name in Trial.__dataclass_fields__ if name not in ("architecture", "values")]
_LIGHT_COLUMNS = *trial.c[*LIGHT], trial.c.last_unit.label("unit_id")
_LIGHT_TRIAL = select(*_LIGHT_COLUMNS)
_OF_UNIT = select(*_LIGHT_COLUMNS).select_from(unit.join(trial, trial.c.id == unit.c.trial_id))
_TRIAL = select(
    *trial.c[*_OWN_COLUMNS], architecture.c.text.label("architecture"), trial.c.last_unit.label("unit_id")
).join(architecture, architecture.c.hash == trial.c.architecture_hash)

# The loop of a search asks this after every trial. It is built once: building it costs more than running it.
_HIGHEST = select(func.max(trial.c.number)).where(trial.c.study_id == bindparam("study"), trial.c.number < FIRST_FINAL)
_LAST_FINAL = select(func.max(trial.c.place)).where(
    trial.c.study_id == bindparam("study"), trial.c.purpose == FINAL, trial.c.arm == MAIN
)


def study_by_name(connection: Connection, name: str) -> Study:
    """The study with this name. Raises UsageError, which suggests the nearest name, if there is none."""
    row = connection.execute(_STUDY.where(study.c.name == name)).first()
    if row is None:
        raise UsageError(unknown("study", name, connection.execute(select(study.c.name)).scalars()))
    return Study(**row._mapping)


def studies(connection: Connection) -> list[Study]:
    """All studies, oldest first."""
    return [Study(**row._mapping) for row in connection.execute(_STUDY.order_by(study.c.id))]


def space_versions(connection: Connection, study_id: int) -> list[SpaceVersion]:
    """The space of a study as it grew, first version first."""
    columns = space_version.c.number, space_version.c.text, space_version.c.created_at
    statement = select(*columns).where(space_version.c.study_id == study_id).order_by(space_version.c.number)
    return [SpaceVersion(**row._mapping) for row in connection.execute(statement)]


def counts(connection: Connection, study_id: int) -> list[TrialCount]:
    """How many trials of each purpose are in each state."""
    columns = trial.c.purpose, trial.c.state
    statement = select(*columns, func.count()).where(trial.c.study_id == study_id).group_by(*columns).order_by(*columns)
    return [TrialCount(purpose, TrialState(state), n) for purpose, state, n in connection.execute(statement)]


def failures(connection: Connection, study_id: int) -> list[Failed]:
    """The failed trials by number, those of the finals too."""
    columns = trial.c.number, trial.c.purpose, trial.c.error_kind
    failed = trial.c.study_id == study_id, trial.c.purpose.in_(PURPOSES), trial.c.state == TrialState.FAILED
    rows = connection.execute(select(*columns).where(*failed)).all()
    return [Failed(*row) for row in sorted(rows)]  # asked to sort, SQLite would read all trials in their order


def arms(connection: Connection, study_id: int, purpose: str) -> dict[str, int]:
    """How many trials of this purpose each arm has. Places count from 0 without a gap: two looks at an index an arm."""
    of_study = trial.c.study_id == study_id, trial.c.purpose == purpose
    found: dict[str, int] = {}
    last = ""
    while name := connection.execute(select(func.min(trial.c.arm)).where(*of_study, trial.c.arm > last)).scalar():
        place = connection.execute(select(func.max(trial.c.place)).where(*of_study, trial.c.arm == name)).scalar_one()
        found[name] = place + 1
        last = name
    return found


def open_units(connection: Connection, study_id: int) -> Counter[UnitState]:
    """How many units are queued and how many are leased; empty if there is nothing left to run."""
    statement = select(unit.c.state, func.count()).where(unit.c.study_id == study_id, unit_is_open)
    found = connection.execute(statement.group_by(unit.c.state))
    return Counter({UnitState(state): number for state, number in found})


def trained_seconds(connection: Connection, study_id: int, purpose: str | None = None) -> float:
    """Seconds of all units (of this purpose) that ended, also of those that failed, summed over the workers."""
    statement = select(func.sum(unit.c.seconds)).where(unit.c.study_id == study_id)
    if purpose is not None:
        statement = statement.join(trial, trial.c.id == unit.c.trial_id).where(trial.c.purpose == purpose)
    return connection.execute(statement).scalar() or 0.0


def next_number(connection: Connection, study_id: int, purpose: str = SEARCH) -> int:
    """The number of the next trial of this purpose."""
    last = connection.execute(_HIGHEST if purpose == SEARCH else _LAST_FINAL, {"study": study_id}).scalar()
    return (0 if purpose == SEARCH else FIRST_FINAL) + (0 if last is None else last + 1)


def has_number(number: int) -> ColumnElement[bool]:
    """Whether a row of trials is that of this number."""
    return trial.c.number == number if 0 <= number <= LAST else false()  # PostgreSQL refuses to compare a larger one


def trials(
    connection: Connection,
    study_id: int,
    *,
    states: Collection[str] = (),
    purposes: Collection[str] = (),
    first: int = 0,
    limit: int | None = None,
    light: bool = False,
    since: Mark | None = None,
) -> list[Trial]:
    """At most `limit` trials from number `first` on, ascending; empty `states` or `purposes` mean all.

    light: without the architecture, the point and other long fields, see `Trial`. since: only trials that changed since
    that mark, and perhaps some that did not.
    """
    statement = _LIGHT_TRIAL if light else _TRIAL
    # Asked for trials of the finals by number, SQLite would look at all of the search: with + 0 it sorts what it found.
    number = trial.c.number + 0 if purposes and SEARCH not in purposes else trial.c.number
    statement = statement.where(trial.c.study_id == study_id).order_by(number)
    if first:  # else SQLite would take the index of numbers, even where that of states leaves few trials
        statement = statement.where(trial.c.number >= first)
    if states:
        statement = statement.where(trial.c.state.in_(states))
    if purposes:
        statement = statement.where(trial.c.purpose.in_(purposes))
    if since is None:
        return _read_trials(connection, statement.limit(limit))
    # First the ids: the planner of SQLite would otherwise look at every trial.
    ids = list(connection.execute(changed_since(study_id, since)).scalars())
    some = [ids[start : start + MOST_IDS] for start in range(0, len(ids), MOST_IDS)]
    found = [each for chosen in some for each in _read_trials(connection, statement.where(trial.c.id.in_(chosen)))]
    return sorted(found, key=lambda each: each.number)[:limit]


def changed_since(study_id: int, since: Mark) -> Select:
    """The ids of the trials that changed since the mark, and of some that did not.

    A trial changes when a unit of it is added, leased or ends, or when the search stops it. A unit that was added or
    leased either is open or has ended since, and a unit that ended has a place in the sequence, whose order is that of
    the commits. So the open units and the sequence say it all, except for stopped trials, which need the time.
    """
    of_study = unit.c.study_id == study_id
    in_index = trial.c.study_id == study_id, trial.c.purpose.in_(PURPOSES), trial.c.state == TrialState.STOPPED
    stopped = select(trial.c.id).where(*in_index)
    if since.time is not None:
        stopped = stopped.where(trial.c.finished_at > since.time - OVERLAP)
    found = union(
        select(unit.c.trial_id).where(of_study, unit.c.sequence > since.sequence),
        select(unit.c.trial_id).where(of_study, unit_is_open),
        stopped,
    )
    return select(found.subquery().c.trial_id)


def light_trials(connection: Connection, unit_ids: Collection[int]) -> dict[int, Trial]:
    """{unit: its trial}, for the last finished units of trials, with the columns in LIGHT and the values."""
    rows = connection.execute(_OF_UNIT.where(unit.c.id.in_(unit_ids))).mappings().all()
    values = values_of(connection, select(unit.c.id).where(unit.c.id.in_(unit_ids)))
    return {row["unit_id"]: _trial(dict(row), values) for row in rows}


def trial_by_number(connection: Connection, study_id: int, number: int) -> Trial:
    """The trial with this number. Raises UsageError, which says which there are, if there is none."""
    found = _read_trials(connection, _TRIAL.where(trial.c.study_id == study_id, has_number(number)))
    if not found:
        purpose = SEARCH if final_of(number) is None else FINAL
        last = next_number(connection, study_id, purpose) - 1
        raise UsageError(f"No {name_of(number)} in this study: {known_numbers(purpose, last)}.")
    return found[0]


def known_numbers(purpose: str, last: int) -> str:
    """Which trials of a purpose there are, for messages. last: the highest number, or one below the first."""
    if purpose == SEARCH:
        return f"the last one is {last}" if last >= 0 else "there are none yet"
    count = last - FIRST_FINAL + 1
    return f"it has {count} final{'s' if count > 1 else ''}" if count > 0 else "it has no finals yet"


_SUMMARY = (
    "id kind rung steps state owner released seconds device checkpoint_uri checkpoint_sha256 sequence error_kind "
    "progress_step progress_loss progress_rate progress_at"
)


def units_of(connection: Connection, study_id: int, number: int) -> list[Unit]:
    """The units of a trial, lowest rung first; those that ended well with their values."""
    columns = *unit.c[*_SUMMARY.split()], unit.c.attempts.label("attempt")
    rows = connection.execute(_units(study_id, number, *columns).order_by(unit.c.rung, unit.c.id)).mappings().all()
    values = values_of(connection, _units(study_id, number, unit.c.id))
    return [_unit(row, values) for row in rows]


def _unit(row: Any, values: Mapping[int, Mapping[str, float]]) -> Unit:
    fields = dict(row) | {"kind": UnitKind(row["kind"]), "state": UnitState(row["state"])}
    return Unit(**fields, values=values[row["id"]] if row["state"] == UnitState.DONE else None)


def curve(connection: Connection, study_id: int, number: int) -> list[tuple[int, float | None]]:
    """(step, training loss) of a trial over all its rungs; a loss that was not a number is None.

    Of a rung that runs it has a point for every renewal of its lease.
    """
    columns = metric.c.step, metric.c.value
    statement = select(*columns).where(
        metric.c.unit_id.in_(_units(study_id, number, unit.c.id)), metric.c.name == CURVE
    )
    found = [(step, value) for step, value in connection.execute(statement.order_by(metric.c.step))]
    running = _units(study_id, number, unit.c.progress_curve).where(unit.c.progress_curve.is_not(None))
    for lines in connection.execute(running).scalars():
        for step, loss in (line.split(" ") for line in lines.splitlines()):
            if not found or int(step) > found[-1][0]:
                found.append((int(step), float(loss) if loss else None))
    return found


def metrics(connection: Connection, study_id: int, number: int, rung: int) -> dict[str, float | None]:
    """The metrics at the end of a rung, by name."""
    end = (
        _units(study_id, number, unit.c.id, unit.c.steps)
        .where(unit.c.kind == UnitKind.TRAIN, unit.c.rung == rung)
        .subquery()
    )
    statement = (
        select(metric.c.name, metric.c.value)
        .join(end, and_(end.c.id == metric.c.unit_id, end.c.steps == metric.c.step))
        .where(metric.c.name != CURVE)
        .order_by(metric.c.name)
    )
    return {row.name: row.value for row in connection.execute(statement)}


def architecture_by_prefix(connection: Connection, prefix: str) -> tuple[str, str]:
    """(hash, text) of the architecture whose hash begins with `prefix`. Raises UsageError for none or several."""
    matches = func.substr(architecture.c.hash, 1, len(prefix)) == prefix
    statement = select(architecture.c.hash, architecture.c.text).where(matches).order_by(architecture.c.hash).limit(4)
    found = [(hash, text) for hash, text in connection.execute(statement)]
    if len(found) == 1 or (found and found[0][0] == prefix):
        return found[0]
    if not found:
        raise UsageError(f"No architecture whose hash begins with {prefix!r}: see `nas best` or `nas show` for hashes.")
    listed = ", ".join(hash[: len(prefix) + 6] for hash, _text in found)
    raise UsageError(f"Several architectures begin with {prefix!r} ({listed}, ...): give more of the hash.")


def _units(study_id: int, number: int, *columns: Any) -> Select:
    joined = select(*columns).join(trial, trial.c.id == unit.c.trial_id)
    return joined.where(trial.c.study_id == study_id, has_number(number))


def _read_trials(connection: Connection, statement: Select) -> list[Trial]:
    rows = connection.execute(statement).mappings().all()
    last = statement.with_only_columns(trial.c.last_unit.label("id"))
    values = values_of(connection, last.order_by(None).order_by(trial.c.number))
    return [_trial(dict(row), values) for row in rows]


def _trial(fields: dict[str, Any], values: dict[int, dict[str, float]]) -> Trial:
    unit_id = fields.pop("unit_id")
    fields |= {"parents": tuple(fields.get("parents", ())), "state": TrialState(fields["state"])}
    return Trial(**fields, values=values.get(unit_id, {}))


def select_values(unit_ids: Select) -> Select:
    """The query of `read_values` for the selected units."""
    columns = objective_value.c.unit_id, objective_value.c.name, objective_value.c.value
    chosen = unit_ids.subquery()
    return select(*columns).join(chosen, chosen.c.id == columns[0])


def read_values(
    connection: Connection, statement: Select, asked: Mapping[str, Any] | None = None
) -> dict[int, dict[str, float]]:
    """The objectives that a query of `select_values` finds: {unit: {name: value}}. asked: its parameters."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for unit_id, name, value in connection.execute(statement, asked or {}).all():
        found[unit_id][name] = value
    return found


def values_of(connection: Connection, unit_ids: Select) -> dict[int, dict[str, float]]:
    """The objectives of the selected units: {unit: {name: value}}."""
    return read_values(connection, select_values(unit_ids))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    names: Sequence[str] = sorted(known)
    if not names:
        return f"No {what} named {name!r}: there is none in this database yet."
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"No {what} named {name!r}.{hint} Known: {listed}."
