"""Where a search may keep its database, and its checkpoints: in a folder here, or at a URL that fsspec can write to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nas.errors import StoreError, UsageError
from nas.files import reason
from nas.store.database.engine import file_of, parse
from nas.upkeep.disk import FULL, obstacle
from nas.upkeep.fronts import FRONT, LOCAL, obstacle_before

READ_ONLY = ("http", "https", "data", "git", "github", "gist")  # protocols to which fsspec writes no files
ARCHIVES = ("zip", "tar", "libarchive")  # one file that holds others
WRAPPERS = ("simplecache", "filecache", "blockcache", "cached", "dir")  # they stand before another protocol
# fsspec connects to their server as soon as it knows the URL, and a plan asks no server.
CONNECTING = ("ftp", "sftp", "ssh", "smb", "hdfs", "arrow_hdfs", "webhdfs", "gs", "gcs", "gdrive", "dropbox")
LONGEST = 504  # bytes of the path of a SQLite file: 512 with its longest ending, -journal
OF_SQLITE = ("-wal", "-shm", "-journal")  # files that SQLite makes next to a database


def check_storage(storage: str) -> Path | None:
    """The file of the study database; None if it is none. Raises StoreError if it could not be made. Makes nothing.

    `nas plan` calls it too, so both commands reject the same places.
    """
    url = parse(storage)
    file = file_of(url)
    if file is None and url.drivername.startswith("sqlite"):
        raise StoreError(
            f"A search needs the path of its database, but got SQLite's own URL {url.database}. Write sqlite:///PATH, "
            "or the path alone: a database that exists is found there too."
        )
    if file is not None and (why := _no_database(file)):
        raise StoreError(f"The study database {file} cannot be made: {why}.")
    return file


def _no_database(file: Path) -> str:
    """Why there can be no database at `file`; "" if it exists or could be made."""
    try:
        kind = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if file.is_symlink() and not file.resolve().parent.is_dir():
            return f"it is a link to a file in a folder that is missing, {file.resolve().parent}"
        return obstacle(file.parent) or _too_long(file)
    except OSError as error:  # the name is too long, links form a loop, or the folder belongs to somebody else
        return str(error.strerror)
    except ValueError as error:  # a NUL
        return str(error)
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a folder is refused when it is opened
        return "it is a device, a pipe or a socket"
    return _too_long(file)


def _too_long(file: Path) -> str:
    real = os.fsencode(os.path.realpath(file))
    return "" if len(real) <= LONGEST else f"its whole path has {len(real)} bytes, and SQLite opens at most {LONGEST}"


def checkpoint_folder(folder: str | None) -> Path | None:
    """The folder of the checkpoints; None if it is on another machine or none are kept. A URL such as file:///x has
    one too. Raises UsageError if it has no name.
    """
    if folder is None:
        return None
    if not folder.strip():
        raise UsageError("checkpoints: the name of the folder is empty. Write null if none are to be kept.")
    path = _local_path(folder) if "://" in folder else folder
    try:
        return None if path is None else Path(path).expanduser().absolute()
    except RuntimeError as error:  # ~NAME of an unknown user
        raise _unusable(folder, str(error).rstrip(".")) from None


def make_checkpoints(folder: str | None, database: Path | None = None) -> None:
    """Make the folder of the checkpoints, if it is local. Raises UsageError if no file could be written to it.

    A full disk is no reason: a search waits until there is space. database: as in `check_checkpoints`.
    """
    check_checkpoints(folder, database)
    place = checkpoint_folder(folder)
    if folder is None or place is None:
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in FULL:
            raise _unusable(folder, f"it cannot be made: {error.strerror}") from None


def check_checkpoints(folder: str | None, database: Path | None = None) -> None:
    """Raise UsageError if no file could be written to the folder of the checkpoints. It makes nothing, and asks no
    server.

    database: the file of the study database. It may not exist yet, but it will not be a folder.
    """
    if folder is None:
        return
    place = checkpoint_folder(folder)
    why = _obstacle_of_url(folder) if "://" in folder else _obstacle_of_name(folder, str(place))
    if not why and place is not None:
        why = _obstacle_of_database(place, database) or obstacle(place)
    if why:
        raise _unusable(folder, why)


def _local_path(url: str) -> str | None:
    """The path of this machine that a URL names, also behind other protocols as in simplecache::file:///x."""
    protocols, rest = _parts(url)
    return rest if protocols[-1] in LOCAL else None


def _parts(url: str) -> tuple[list[str], str]:
    """The protocols of a URL, and what follows them; simplecache://::s3://x means simplecache::s3://x."""
    protocols, _, rest = url.replace("://::", "::").partition("://")
    return protocols.split("::"), rest


def _obstacle_of_database(place: Path, database: Path | None) -> str:
    """Why `place` takes the name of a file of the study database; "" if it does not."""
    if database is None:
        return ""
    file, real = _resolved(database), _resolved(place)
    above = {place, *place.parents, real, *real.parents}
    if not above.isdisjoint((database.absolute(), file)):
        return f"{database} is the study database"
    taken = (file.with_name(file.name + end) for end in OF_SQLITE)
    return next((f"{each} is a file of the study database" for each in taken if each in above), "")


def _resolved(path: Path) -> Path:
    """The path without links, `..` and a second / at its beginning, as far as it exists."""
    try:
        return Path("/" + os.path.realpath(path).lstrip("/"))
    except ValueError:  # a NUL
        return path


def _obstacle_of_name(folder: str, path: str) -> str:
    """Why fsspec would not take the path of a local folder as it is; "" if it would."""
    first, double, rest = folder.partition("::")
    if double and first == FRONT:
        return f"behind {first}:: comes a URL. Write {first}::file://{Path(rest).absolute()}"
    if folder.startswith("data:"):
        return f"for fsspec it is not a folder but data to read. Write ./{folder}"
    return "its path has ::, which joins the parts of a URL" if "::" in path else ""


def _obstacle_of_url(url: str) -> str:
    """Why fsspec writes no file to a URL of this kind; "" if it may."""
    protocols, rest = _parts(url)
    small = f"{'::'.join(protocols).lower()}://{rest}"
    why = next((why for each in protocols if (why := _obstacle_of_protocol(each, small))), "")
    why = why or _obstacle_of_rest(protocols[-1], rest)
    if not why and (found := obstacle_before(protocols[:-1], protocols[-1])):
        why = f"{found}. Write {FRONT}::{protocols[-1]}://{rest}"
    return why or _obstacle_of_fsspec(protocols[-1], rest)


def _obstacle_of_protocol(protocol: str, small: str) -> str:
    """Why fsspec writes no file with this protocol; "" if it may. small: the URL with protocols in small letters."""
    import fsspec  # not at the top, because commands that only read do not need it

    if not protocol.strip():  # fsspec would take it as a local folder
        return "it names no protocol. A URL begins with one, such as s3://"
    if protocol.lower() in READ_ONLY:
        return f"files can only be read from {protocol.lower()}://"
    if protocol != protocol.lower():
        return f"a protocol has small letters: {small}"
    if protocol in ARCHIVES:
        return f"{protocol}:// is an archive, and checkpoints need a folder from which they can be removed"
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:  # a package that is missing, or an unknown protocol
        return str(error).rstrip(".")
    return ""


def _obstacle_of_rest(protocol: str, rest: str) -> str:
    """Why a URL with `rest` behind the :// of its last protocol is no place for files; "" if it is one."""
    if protocol in WRAPPERS:
        return f"{protocol} stands before another protocol, as in {protocol}::s3://NAME"
    if "::" in rest:  # the names of the files would be added to the last part
        return "its parts are joined by :: before the ://, as in simplecache::s3://NAME"
    if protocol in LOCAL:
        return _obstacle_of_path(protocol, rest)
    if not rest.strip().strip("/"):
        return f"it names no place. Write one, such as {protocol}://NAME"
    if protocol == "hf" and "/" not in rest.strip("/"):
        return "a repository of hf:// has an owner and a name. Write hf://OWNER/NAME/FOLDER"
    return ""


def _obstacle_of_path(protocol: str, path: str) -> str:
    """Why `path` is no folder of this machine; "" if it is one. As for fsspec, file://runs is the folder runs."""
    if not path.strip():
        return f"it names no folder. Write one, such as {protocol}:///PATH"
    host, _, rest = path.partition("/")
    return f"a path behind {protocol}:// has no host. Write {protocol}:///{rest}" if host == "localhost" else ""


def _obstacle_of_fsspec(protocol: str, rest: str) -> str:
    """Why fsspec cannot begin with this URL, as if it needs more than a URL; "" if it can, or if it would connect."""
    import fsspec

    if protocol in CONNECTING:
        return ""
    try:
        fsspec.core.url_to_fs(f"{protocol}://{rest}")  # without FRONT, which would make a folder for its copies
    except OSError:  # a server that does not answer: it may later
        return ""
    except Exception as error:  # each protocol has its own
        return f"fsspec needs more than this URL for it ({reason(error)})"
    return ""


def _unusable(folder: str, why: str) -> UsageError:
    return UsageError(f"checkpoints: the folder {folder!r} cannot be used: {why}. Name another one in the search file.")
