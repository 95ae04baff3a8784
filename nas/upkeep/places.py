"""Where a search keeps its database, and its checkpoints: in a folder here, or at a URL that fsspec can write to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import URL

from nas.errors import StoreError, UsageError
from nas.files import reaching, reason
from nas.store.database import secrets
from nas.store.database.engine import file_of, parse
from nas.upkeep.disk import FULL

LOCAL = ("file", "local")  # protocols of this machine's own folders


def check_storage(storage: str) -> Path | None:
    """The file of the study database; None if it is none. Raises StoreError if it could not be made. Makes nothing."""
    url = parse(storage)
    file = file_of(url)
    if file is None and url.drivername.startswith("sqlite"):
        raise StoreError(
            f"A search needs the path of its database, but got SQLite's own URL {url.database}. Write sqlite:///PATH, "
            "or the path alone: a database that exists is found there too."
        )
    if file is not None and (why := _obstacle(file.parent)):
        raise StoreError(f"The study database {file} cannot be made: {why}.")
    return file


def checkpoint_folder(folder: str | None) -> Path | None:
    """The folder of the checkpoints; None if it is on another machine or none are kept. A URL such as file:///x has
    one too. Raises UsageError if it has no name.
    """
    if folder is None:
        return None
    if not folder.strip():
        raise UsageError("checkpoints: the name of the folder is empty. Write null if none are to be kept.")
    protocols, double, rest = folder.partition("://")
    if double and protocols.split("::")[-1] not in LOCAL:
        return None
    try:
        return Path(rest if double else folder).expanduser().absolute()
    except RuntimeError as error:  # ~NAME of an unknown user
        raise _unusable(folder, str(error).rstrip(".")) from None


def check_checkpoints(folder: str | None) -> None:
    """Raise UsageError if no checkpoint could be written to `folder`, as far as that is known without trying it."""
    if folder is None:
        return
    if (place := checkpoint_folder(folder)) is not None and (why := _obstacle(place)):
        raise _unusable(folder, why)
    import fsspec  # not at the top, because commands that only read do not need it

    try:
        fsspec.get_filesystem_class(folder.partition("://")[0].split("::")[-1] if "://" in folder else "file")
    except (ImportError, ValueError) as error:  # a package that is missing, or an unknown protocol
        raise _unusable(folder, str(error).rstrip(".")) from None


def make_checkpoints(folder: str | None, study: str, storage: str) -> None:
    """Make the folder of the checkpoints of `study`, and write into it which database keeps them, see `is_owned`.

    Raises UsageError if no file can be written there. A full disk is no reason: a search waits until there is space.
    """
    check_checkpoints(folder)
    if folder is None:
        return
    import fsspec

    place = checkpoint_folder(folder)
    try:
        system, path = fsspec.core.url_to_fs(folder if place is None or "::" in folder else str(place))
        system.makedirs(path, exist_ok=True)
        if is_owned(path if "file" in system.protocol else folder, study, parse(storage)):
            system.pipe_file(f"{path}/{_note(study)}", _name(parse(storage)).encode())
    except Exception as error:  # each protocol has its own
        if not isinstance(error, OSError) or error.errno not in FULL:
            raise _unusable(folder, reason(error)) from error


def is_owned(folder: str, study: str, database: URL) -> bool:
    """Whether `database` keeps the checkpoints of `study` in `folder`, or no other one does.

    A copy of a file that goes on by itself writes to the folder of the original, and must remove nothing there. If the
    file that the folder's note names is gone, the database was moved. A server has many URLs, so one that the note
    names is taken as this database. Raises Unreachable.
    """
    import fsspec

    with reaching(folder):
        system, path = fsspec.core.url_to_fs(folder)
        note = f"{path}/{_note(study)}"
        found = system.cat_file(note).decode() if system.exists(note) else ""
    return found in ("", _name(database)) or "://" in found or not Path(found).exists()


def forget(folder: str, study: str) -> None:
    """Remove the note of a study that was deleted from its folder."""
    import fsspec

    with contextlib.suppress(Exception):  # each protocol has its own
        system, path = fsspec.core.url_to_fs(folder)
        system.rm_file(f"{path}/{_note(study)}")


def _note(study: str) -> str:
    """The name of the file, in a folder of checkpoints, that says which database keeps those of a study there."""
    return f"{quote(study, safe='')}.database"


def _name(database: URL) -> str:
    file = file_of(database)
    return secrets.shown(database) if file is None else str(file.resolve())


def _obstacle(folder: Path) -> str:
    """Why no file can be written to `folder`, which need not exist yet; "" if no reason is seen."""
    try:
        above = next(each for each in (folder, *folder.parents) if os.path.lexists(each))  # also a broken link
    except (OSError, ValueError, StopIteration) as error:  # a name that is too long, or a NUL
        return str(getattr(error, "strerror", None) or error)
    if not above.is_dir():
        return f"{above} is not a folder"
    return "" if os.access(above, os.W_OK | os.X_OK) else f"no file can be written to {above}"


def _unusable(folder: str, why: str) -> UsageError:
    return UsageError(f"checkpoints: the folder {folder!r} cannot be used: {why}. Name another one in the search file.")
