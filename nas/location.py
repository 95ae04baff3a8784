"""Finds the database of a study, and opens an existing study by its name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nas.errors import StoreError
from nas.files import exists, is_file
from nas.numbers import number_of
from nas.store import Reader, Store, Study, Trial, open_reader, open_store
from nas.store.database import secrets
from nas.store.database.engine import file_of, parse
from searchspace.errors import nearest

if TYPE_CHECKING:
    from nas.config.schema import SearchConfig  # pydantic takes a third of a second to import

VARIABLE = "NAS_STORAGE"
FOLDER = Path("runs")
CACHE = Path.home() / ".cache" / "tessera-nas"  # data prepared once a node
HASH_DIGITS = 6  # the fewest that identify an architecture
Opened = TypeVar("Opened", bound=Reader)


def storage_of(study: str, storage: str | None = None) -> str:
    """The URL or path of the database of `study`: `storage`, else $NAS_STORAGE, else runs/STUDY.db."""
    return storage or os.environ.get(VARIABLE) or f"sqlite:///{FOLDER}/{study}.db"


def storage_for(config: SearchConfig, storage: str | None = None) -> str:
    """The URL of the database of a search: `storage`, else the one in its search file, else as in `storage_of`."""
    written = config.storage if "storage" in config.model_fields_set else None
    return url(storage or written or storage_of(config.study))


def url(storage: str | Path) -> str:
    """The URL of a database; a path means a SQLite file. Raises StoreError if `storage` is neither."""
    return parse(storage).render_as_string(hide_password=False)


def shown(storage: str | Path) -> str:
    """The URL without its password, for messages."""
    return secrets.shown(parse(storage))


def command(store: Reader, study: str, *words: str) -> str:
    """`nas WORDS` about a study in `store`, as it can be copied: with --storage if the study's name is not enough."""
    return shlex.join(["nas", *words, *option(store, study)])


def option(store: Reader, study: str) -> list[str]:
    """The words --storage and a database; none if that is where a command looks for the study by its name."""
    found = store.database.url
    with suppress(StoreError):  # $NAS_STORAGE may be no database, and is not needed with --storage
        if found == parse(storage_of(study)):
            return []
    return ["--storage", secrets.option(found)]


def trial_name(store: Reader, study: str, trial: Trial) -> str:
    """A trial as an argument of a command that can be copied."""
    return shlex.join([f"{study}:{trial.address}", *option(store, study)])


def trial_reference(reference: str) -> tuple[str, int] | None:
    """(study, number) if `reference` is STUDY:NUMBER or STUDY:final-NUMBER; None if it is a file or something else."""
    study, _, address = reference.rpartition(":")
    number = number_of(address)
    return (study, number) if study and number is not None and not exists(Path(reference)) else None


def open_existing(study: str, storage: str | None = None) -> tuple[Reader, Study]:
    """The database, to read it, and the study.

    Raises StoreError if there is no database, UsageError if it has no such study.
    """
    return _opened(open_reader, study, storage)


def open_to_continue(study: str, storage: str | None = None) -> tuple[Store, Study]:
    """As `open_existing`, to write. Raises the same errors."""
    return _opened(partial(open_store, create=False), study, storage)


def _opened(opens: Callable[[str], Opened], study: str, storage: str | None) -> tuple[Opened, Study]:
    where = storage_of(study, storage)
    file = file_of(parse(where))
    try:
        is_missing = file is not None and not file.exists()
    except OSError as error:  # the name is too long, or the folder belongs to another user
        raise StoreError(f"The study database {file} cannot be read: {error.strerror}.") from None
    if file is not None and is_missing:
        raise StoreError(_missing(study, file, default=where == storage_of(study)))
    store = opens(where)
    try:
        return store, store.study(study)
    except BaseException:
        store.close()
        raise


def known_studies() -> list[str]:
    """The names of the SQLite files in the default folder."""
    return sorted(path.stem for path in FOLDER.glob("*.db"))


def _missing(study: str, file: Path, *, default: bool) -> str:
    if is_file(Path(study)):
        return f"{study} is a file. Give the name of the study, which is the value of `study` in its search file."
    known = known_studies() if default else []
    here = f" {FOLDER}/ holds: {', '.join(known)}.{nearest(study, known)}" if known else ""
    return (
        f"There is no study database {file}.{here} Name another with --storage (in Python `storage`) or "
        f"{VARIABLE}, or start the study with `nas search FILE`."
    )
