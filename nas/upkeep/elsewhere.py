"""Finds the checkpoints of a study that another database names too: the original of a copy, or a copy of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import StoreError
from nas.location import FOLDER
from nas.store.database.engine import Database, file_of, parse
from nas.store.upkeep.kept import named

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from nas.store import Reader, Study


def named_elsewhere(store: Reader, study: Study, uris: Iterable[str]) -> set[str]:
    """Those of `uris`, checkpoints of `study`, that a study of the same name has in another database: in the default
    folder, next to this database, or at most two folders above a checkpoint. A database that cannot be read names none.
    """
    uris = set(uris)
    found: set[str] = set()
    for url in _others(store.database.engine.url, uris):
        database = Database(url, wait=1.0, reads_only=True)
        try:
            found |= database.at_once(lambda connection: named(connection, study.name), writes=False)
        except StoreError:  # it holds something else
            continue
        finally:
            database.close()
    return found & uris


def _others(own: URL, uris: Iterable[str]) -> Iterator[URL]:
    """The databases that may hold a copy or the original of the one at `own`."""
    file = file_of(own)
    folders = {Path(uri).parent for uri in uris if "://" not in uri}
    folders |= {each.parent for each in folders} | {each.parent.parent for each in folders}
    folders |= {FOLDER.absolute(), *([] if file is None else [file.absolute().parent])}
    places = {each.resolve() for folder in folders for each in folder.glob("*.db")}
    return (parse(each) for each in sorted(places - ({file.resolve()} if file is not None else set())))
