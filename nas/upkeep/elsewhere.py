"""Finds other databases of a study, the original of a copy or a copy of it, and the checkpoints that they name too."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from nas.errors import StoreError
from nas.location import FOLDER
from nas.store.database.engine import Database, file_of, parse
from nas.store.kept import is_open, named, progress

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

    from nas.store import Reader, Study

T = TypeVar("T")


def named_elsewhere(store: Reader, study: Study, uris: Iterable[str]) -> set[str]:
    """Those of `uris`, checkpoints of `study`, that a study of the same name has in another database: in the default
    folder, next to this database, or at most two folders above a checkpoint. A database that cannot be read names none.
    """
    uris = set(uris)
    asked = _answers(store, uris, lambda connection: named(connection, study.name))
    return uris & {uri for _, found in asked for uri in found}


def named_by_diverged(store: Reader, study: Study, uris: Iterable[str]) -> set[str]:
    """Those of `uris` that a copy which went on by itself has: it names checkpoints which this database does not."""
    own = store.database.read(lambda connection: named(connection, study.name))
    asked = _answers(store, uris := set(uris), lambda connection: named(connection, study.name))
    return uris & {uri for _, found in asked if found - own for uri in found}


def newer(store: Reader, study: Study, uris: Iterable[str]) -> Path | None:
    """A database that has more results of `study` than this one, which is then a copy; it is looked for in the same
    places. None if there is none.
    """

    def is_newer(connection: Connection) -> bool:
        found = progress(connection, study.name)
        return found is not None and found[0] == study.created_at and found[1] > study.sequence

    return next((file_of(url) for url, yes in _answers(store, set(uris), is_newer) if yes), None)


def has_open_units(store: Reader, study: Study, uris: Iterable[str]) -> bool:
    """Whether a study of the same name, in a database in one of these places, has units that wait or run."""
    return any(yes for _, yes in _answers(store, set(uris), lambda connection: is_open(connection, study.name)))


def _answers(store: Reader, uris: set[str], ask: Callable[[Connection], T]) -> Iterator[tuple[URL, T]]:
    """What each other database answers; one that cannot be read is left out."""
    for url in _others(store.database.engine.url, uris):
        database = Database(url, wait=1.0, reads_only=True)
        try:
            found = database.at_once(ask, writes=False)
        except (StoreError, SQLAlchemyError, sqlite3.Error, ValueError, TypeError):  # it holds something else
            continue
        finally:
            database.close()
        yield url, found


def _others(own: URL, uris: Iterable[str]) -> Iterator[URL]:
    """The databases that may hold a copy or the original of the one at `own`."""
    file = file_of(own)
    folders = {Path(uri).parent for uri in uris if "://" not in uri}
    folders |= {each.parent for each in folders} | {each.parent.parent for each in folders}
    folders |= {FOLDER.absolute(), *([] if file is None else [file.absolute().parent])}
    places = {each.resolve() for folder in folders for each in folder.glob("*.db") if each.is_file()}
    return (parse(each) for each in sorted(places - ({file.resolve()} if file is not None else set())))
