"""Copies a study database while it is in use."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import URL

from nas.errors import NasError, StoreError, UsageError
from nas.files import check_writable
from nas.store.database.engine import file_of, parse
from nas.store.database.secrets import redacted, shown
from nas.store.schema import VERSION_TABLE


def backup(where: str | Path, target: Path) -> int:
    """Copy a database to the new file `target` -> the bytes of the copy.

    SQLite: with its backup interface, so that processes may write meanwhile. PostgreSQL: with `pg_dump`, if it is
    installed. The copy has a temporary name until it is complete. Raises UsageError if `target` exists or cannot be a
    file, StoreError if the database cannot be read or `pg_dump` is missing.
    """
    check_writable(target)
    if target.exists():
        raise UsageError(f"{target} exists already: name a new file, so that no older copy is lost.")
    url = parse(where)
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        if url.drivername.startswith("sqlite"):
            file = file_of(url)
            if file is None or not file.is_file():
                raise StoreError(f"There is no study database {url.database}: name another one.")
            _copy(file, part)
        else:
            _dump(url, part)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(target)
    except OSError as error:
        raise NasError(f"Could not write {target}: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size


def _copy(file: Path, part: Path) -> None:
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(part)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
            names = [name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    except sqlite3.Error as error:
        raise StoreError(
            f"The study database {file} could not be copied ({error}). `nas doctor --storage {file}` says what is "
            "damaged; `sqlite3 FILE .recover | sqlite3 NEW` saves what can be read."
        ) from None
    if VERSION_TABLE not in names:
        raise StoreError(f"{file} holds no studies, so there is nothing to copy: name another one.")


def _dump(url: URL, part: Path) -> None:
    command, place = shutil.which("pg_dump"), shown(url)
    if command is None:
        raise StoreError(
            f"PostgreSQL is copied with its own pg_dump, which is not installed here. Run where it is: "
            f"pg_dump --format=custom --file=FILE {place}"
        )
    known = {} if url.password is None else {"PGPASSWORD": str(url.password)}  # others can read command lines
    named = url.set(drivername="postgresql", password=None).render_as_string()
    done = subprocess.run(
        [command, "--format=custom", f"--file={part}", f"--dbname={named}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | known,
    )
    if done.returncode:
        raise StoreError(f"pg_dump could not copy {place}: {redacted(done.stderr.strip()[-500:])}")
