"""The checksums of what a database holds: computed for rows that have none, and compared for those that have one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, text

from nas.store.types import decoded
from nas.store.upkeep import checksums

BATCH = 500  # units that are read at once
_PARTS = (
    ("objective_value", checksums.OBJECTIVE),
    ("metric", checksums.METRIC),
    ("document_score", checksums.SCORES),
)
# Tables whose rows have checksums of their own: (key, columns).
ROWS = {
    "study": (("id",), checksums.STUDY),
    "space_version": (("study_id", "number"), checksums.SPACE),
    "architecture": (("hash",), checksums.ARCHITECTURE),
    "trial": (("id",), checksums.TRIAL),
    "drawing": (("study_id", "architecture_hash"), checksums.DRAWING),
}
_JSON = {"names", "totals", "weights"}


def computed(
    connection: Connection, *, stored: bool, study_id: int | None = None
) -> Iterator[tuple[int, str | None, str]]:
    """(id, stored checksum, checksum of what is there) of each unit that is done, in the order of their ids.

    stored: whether the column of the checksums is there. study_id: of one study; None for all.
    """
    columns = ", ".join(("id", *checksums.UNIT, *(("checksum",) if stored else ())))
    wanted = "state = 'done' AND id > :after" + ("" if study_id is None else " AND study_id = :study")
    query = text(f"SELECT {columns} FROM unit WHERE {wanted} ORDER BY id LIMIT {BATCH}")
    asked = {"after": -(2**62)} | ({} if study_id is None else {"study": study_id})
    while rows := connection.execute(query, asked).mappings().all():
        first, last = rows[0]["id"], rows[-1]["id"]
        asked["after"] = last
        parts = [_by_unit(connection, table, names, first, last) for table, names in _PARTS]
        for row in rows:
            yield row["id"], row.get("checksum"), checksums.of_unit(dict(row), *(part[row["id"]] for part in parts))


def checksum_of(connection: Connection, unit_id: int) -> str:
    """The checksum of what is there of one unit."""
    query = text(f"SELECT {', '.join(checksums.UNIT)} FROM unit WHERE id = :id")
    row = connection.execute(query, {"id": unit_id}).mappings().one()
    parts = (_by_unit(connection, table, names, unit_id, unit_id)[unit_id] for table, names in _PARTS)
    return checksums.of_unit(dict(row), *parts)


def _by_unit(
    connection: Connection, table: str, names: tuple[str, ...], first: int, last: int
) -> Mapping[int, list[Mapping[str, Any]]]:
    query = text(f"SELECT unit_id, {', '.join(names)} FROM {table} WHERE unit_id BETWEEN :first AND :last")
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in connection.execute(query, {"first": first, "last": last}).mappings():
        found[row["unit_id"]].append({key: loaded(value) if key in _JSON else value for key, value in row.items()})
    return found


def rows(
    connection: Connection, table: str, *, stored: bool, only: Mapping[str, Any] | None = None
) -> Iterator[tuple[dict[str, Any], str | None, str]]:
    """(key, stored checksum, checksum of what is there) of each row of a table of `ROWS`, or of those with this key.

    stored: whether the column of the checksums is there.
    """
    keys, columns = ROWS[table]
    names = dict.fromkeys((*keys, *columns, *(("checksum",) if stored else ())))
    where = f" WHERE {' AND '.join(f'{name} = :{name}' for name in only)}" if only else ""
    query = text(f"SELECT {', '.join(names)} FROM {table}{where}").execution_options(yield_per=BATCH)
    for row in connection.execute(query, dict(only or {})).mappings():
        values = {name: _plain(name, row[name]) for name in columns}
        try:
            found_there = checksums.of_row(values, columns)
        except (ValueError, TypeError):  # a value of another type
            found_there = ""
        yield {name: row[name] for name in keys}, row.get("checksum"), found_there


def _plain(name: str, value: Any) -> Any:
    return loaded(value) if name in checksums.DOCUMENTS and isinstance(value, str) else value


def loaded(written: str) -> Any:
    """The data of a JSON text; the text itself if it is damaged, which `damage` reports."""
    try:
        return decoded(written)
    except ValueError:
        return written


def fill(connection: Connection) -> None:
    """Give every unit that is done and every verdict its checksum."""
    rows = [{"id": each, "checksum": checksum} for each, _, checksum in computed(connection, stored=False)]
    if rows:
        connection.execute(text("UPDATE unit SET checksum = :checksum WHERE id = :id"), rows)
    verdicts = connection.execute(text("SELECT id, document FROM verdict")).all()
    for number, document in verdicts:
        values = {"id": number, "checksum": checksums.of_document(loaded(document))}
        connection.execute(text("UPDATE verdict SET checksum = :checksum WHERE id = :id"), values)


def fill_rows(connection: Connection, tables: Iterable[str] = ROWS) -> None:
    """Give every row of these tables of `ROWS` its checksum."""
    for table in tables:
        keys = ROWS[table][0]
        where = " AND ".join(f"{name} = :{name}" for name in keys)
        found = [key | {"checksum": checksum} for key, _, checksum in rows(connection, table, stored=False)]
        for first in range(0, len(found), BATCH):
            some = found[first : first + BATCH]
            connection.execute(text(f"UPDATE {table} SET checksum = :checksum WHERE {where}"), some)
