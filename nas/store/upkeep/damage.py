"""Finds damage in a study database: what the database itself sees, values of the wrong type, checksums, invariants.

Every check goes on after what it cannot read, so one damaged row does not hide another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Column, Connection, Integer, Table, Text, text
from sqlalchemy.exc import SQLAlchemyError

from nas.numbers import FIRST_FINAL
from nas.store.database.engine import Database, transaction
from nas.store.device_models import metadata
from nas.store.types import Document, Moment, decoded
from nas.store.upkeep import checksums
from nas.store.upkeep.filling import ROWS, checksum_of, computed, loaded, rows

FEW = 2000  # trials of a study that are checked whenever a search goes on, in about a second
MOST = 50  # findings of one check: a damaged page spoils hundreds of rows
_LATEST = 253_402_300_799  # seconds: the end of the year 9999


@dataclass(frozen=True)
class Damage:
    """One damaged row, or a table in which the damaged row is unknown."""

    table: str
    row: str
    found: str

    def __str__(self) -> str:
        return f"table {self.table}{f', row {self.row}' if self.row else ''}: {self.found}"


def damage(database: Database) -> list[Damage]:
    """All that is wrong with a database at the version of this program; at most `MOST` findings of each check."""
    found: list[Damage] = []
    for check in (_integrity, _values, _checksums, _rows, _verdicts, _invariants):
        found += _tried(database, check)
    return list(dict.fromkeys(found))


def _tried(database: Database, check: Callable[[Connection], Iterator[Damage]]) -> list[Damage]:
    found: list[Damage] = []

    def work(connection: Connection) -> None:
        for each in islice(check(connection), MOST):
            found.append(each)

    try:
        with transaction(database.engine) as connection:
            work(connection)
    except (SQLAlchemyError, ValueError, TypeError, KeyError, OverflowError, UnicodeError) as error:
        found.append(Damage(check.__name__.strip("_"), "", f"the check could not finish: {_short(error)}"))
    return found


def _integrity(connection: Connection) -> Iterator[Damage]:
    """What SQLite finds in its own file. PostgreSQL checks its constraints always, and its pages if asked to."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.execute(text(f"PRAGMA integrity_check({MOST})")):
        if line != "ok":
            yield Damage("(the file)", "", str(line))
    for table, row, other, _ in connection.execute(text("PRAGMA foreign_key_check")):
        yield Damage(str(table), str(row), f"it refers to a row of {other} that is missing")


def _values(connection: Connection) -> Iterator[Damage]:
    """Values that are not of the type of their column, and JSON that cannot be read."""
    for table in metadata.sorted_tables:
        try:
            yield from _values_of(connection, table)
        except (SQLAlchemyError, ValueError, OverflowError) as error:
            yield Damage(table.name, "", f"rows cannot be read: {_short(error)}")


def _values_of(connection: Connection, table: Table) -> Iterator[Damage]:
    bytewise = connection.dialect.name == "sqlite"
    names = [
        f"CAST({column.name} AS BLOB)" if bytewise and _is_text(column) else column.name for column in table.columns
    ]
    for row in connection.execute(text(f"SELECT {', '.join(names)} FROM {table.name}")):
        for column, value in zip(table.columns, row, strict=True):
            if problem := _problem(column, value):
                keys = [
                    f"{each.name} {other!r}" for each, other in zip(table.columns, row, strict=True) if each.primary_key
                ]
                yield Damage(table.name, ", ".join(keys), f"{column.name} {problem}")


def _is_text(column: Column[Any]) -> bool:
    return isinstance(column.type, Document | Text)


def _problem(column: Column[Any], value: Any) -> str | None:
    if value is None:
        return None if column.nullable else "is missing"
    if isinstance(column.type, Moment):
        fits = isinstance(value, int | float) and math.isfinite(value) and 0 <= value < _LATEST
        return None if fits else f"is no time: {_short(value)}"
    if _is_text(column):
        try:
            written = value.decode("utf-8") if isinstance(value, bytes) else value
            if isinstance(column.type, Document):
                decoded(written)
        except ValueError as error:
            return f"cannot be read: {_short(error)}"
        return None
    wanted = int if isinstance(column.type, Integer) else (int, float)
    return None if isinstance(value, wanted) else f"is no number: {_short(value)}"


def of_study(connection: Connection, study_id: int) -> Iterator[Damage]:
    """What is wrong with the rows that say what a study searches, its own and those of its spaces, and with up to `FEW`
    trials and their results. To check more takes longer than to read them."""
    for table, key in (("study", {"id": study_id}), ("space_version", {"study_id": study_id})):
        yield from _of_rows(table, rows(connection, table, stored=True, only=key))
    count = text("SELECT count(*) FROM trial WHERE study_id = :study")
    if connection.execute(count, {"study": study_id}).scalar_one() <= FEW:
        yield from _of_rows("trial", rows(connection, "trial", stored=True, only={"study_id": study_id}))
        for number, stored, found in computed(connection, stored=True, study_id=study_id):
            yield from _of_unit(number, stored, found)


def of_result(connection: Connection, study_id: int, number: int, *, verdict: bool) -> Iterator[Damage]:
    """What is wrong with the rows that an export states of a trial: its study, its architecture, its results, and with
    `verdict` those of the finals."""
    ids = {"study": study_id, "number": number}
    trial = connection.execute(
        text("SELECT id, architecture_hash FROM trial WHERE study_id = :study AND number = :number"), ids
    ).one()
    for table, key in (("study", {"id": study_id}), ("architecture", {"hash": trial.architecture_hash})):
        yield from _of_rows(table, rows(connection, table, stored=True, only=key))
    done = text("SELECT id, checksum FROM unit WHERE trial_id = :id AND state = 'done' ORDER BY rung")
    for unit, stored in connection.execute(done, {"id": trial.id}).all():
        yield from _of_unit(unit, stored, checksum_of(connection, unit))
    if verdict:
        yield from _verdicts(connection, study_id)


def _checksums(connection: Connection) -> Iterator[Damage]:
    for number, stored, found in computed(connection, stored=True):
        yield from _of_unit(number, stored, found)


def _of_unit(number: int, stored: str | None, found: str) -> Iterator[Damage]:
    if stored != found:
        what = "it has no checksum" if stored is None else "its values do not agree with its checksum"
        rows = "objective_value, metric and document_score"
        yield Damage("unit", f"id {number}", f"{what} (its own, or those of its rows in {rows})")


def _rows(connection: Connection) -> Iterator[Damage]:
    for table in ROWS:
        yield from _of_rows(table, rows(connection, table, stored=True))


def _of_rows(table: str, some: Iterable[tuple[dict[str, Any], str | None, str]]) -> Iterator[Damage]:
    for key, stored, found in some:
        if stored != found:
            what = "it has no checksum" if stored is None else "its values do not agree with its checksum"
            yield Damage(table, ", ".join(f"{name} {value!r}" for name, value in key.items()), what)


def _verdicts(connection: Connection, study_id: int | None = None) -> Iterator[Damage]:
    """Of one study, or of all."""
    where = "" if study_id is None else " WHERE study_id = :study"
    query = text(f"SELECT id, document, checksum FROM verdict{where}")
    for number, document, stored in connection.execute(query, {} if study_id is None else {"study": study_id}):
        if stored != checksums.of_document(loaded(document)):
            yield Damage("verdict", f"id {number}", "its document does not agree with its checksum")


_INVARIANTS = (
    ("study", "its sequence counts other units than those that ended", """
     SELECT s.id FROM study s WHERE s.sequence <> (SELECT count(*) FROM unit u WHERE u.study_id = s.id
     AND u.sequence IS NOT NULL) OR s.sequence <> (SELECT coalesce(max(u.sequence), 0) FROM unit u
     WHERE u.study_id = s.id)"""),
    ("trial", "its numbers have a gap before this row", f"""
     SELECT t.id FROM trial t WHERE t.number > 0 AND t.number < {FIRST_FINAL} AND NOT EXISTS (SELECT 1 FROM trial o
     WHERE o.study_id = t.study_id AND o.number = t.number - 1)"""),
    ("trial", "its number is not that of its place among the finals", f"""
     SELECT t.id FROM trial t WHERE t.number >= {FIRST_FINAL}
     AND (t.purpose <> 'final' OR t.number <> {FIRST_FINAL} + t.place)"""),
    ("trial", "the finals have a gap before this row", """
     SELECT t.id FROM trial t WHERE t.purpose = 'final' AND t.place > 0 AND NOT EXISTS (SELECT 1 FROM trial o
     WHERE o.study_id = t.study_id AND o.arm = t.arm AND o.purpose = t.purpose AND o.place = t.place - 1)"""),
    ("trial", "no unit of its highest finished rung is done", """
     SELECT t.id FROM trial t WHERE t.rung IS NOT NULL AND NOT EXISTS (SELECT 1 FROM unit u WHERE u.id = t.last_unit
     AND u.trial_id = t.id AND u.rung = t.rung AND u.kind = 'train' AND u.state = 'done' AND u.steps = t.steps)"""),
    ("unit", "it is done and has no result, as the other units of its study have", """
     SELECT u.id FROM unit u WHERE u.state = 'done' AND u.kind = 'train' AND NOT EXISTS (SELECT 1 FROM objective_value v
     WHERE v.unit_id = u.id) AND EXISTS (SELECT 1 FROM unit o JOIN objective_value v ON v.unit_id = o.id
     WHERE o.study_id = u.study_id AND o.kind = 'train')"""),
    ("unit", "its lease and its state contradict each other", """
     SELECT u.id FROM unit u WHERE (u.state = 'running') <> (u.lease_expires IS NOT NULL)"""),
    ("unit", "it waits or runs, and its trial has ended", """
     SELECT u.id FROM unit u JOIN trial t ON t.id = u.trial_id WHERE u.state IN ('queued', 'running')
     AND t.state IN ('complete', 'failed')"""),
)  # fmt: skip


def _invariants(connection: Connection) -> Iterator[Damage]:
    for table, found, query in _INVARIANTS:
        for (number,) in connection.execute(text(f"{query} LIMIT {MOST}")):
            yield Damage(table, f"id {number}", found)


def _short(value: object) -> str:
    words = " ".join(str(getattr(value, "orig", None) or value).split())
    return words if len(words) <= 120 else words[:117] + "..."
