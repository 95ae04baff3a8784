"""What a user can do about an exception of the database, and whether to retry the transaction."""

from __future__ import annotations

import re

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from nas.errors import StoreError
from nas.store.database.secrets import redacted

# SQLSTATE classes and codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
CONFLICTS = {"40001", "40P01"}  # serialisation failure, deadlock
TIMEOUTS = {"55P03", "57014"}  # the server's lock_timeout, its statement_timeout
# Its idle_in_transaction_session_timeout, transaction_timeout, idle_session_timeout: this process was too slow.
TIMEOUTS |= {"25P03", "25P04", "57P05"}
NO_WRITES = {"25006"}  # read-only, as a standby is until it becomes the primary server
GOING_OR_COMING = {"57P01", "57P02", "57P03", "53300"}  # shut down, crashed, starting up, too many clients
# A quota gives an error of a write. Without space, SQLite cannot enlarge the index of its log either.
FULL = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}

_SQLITE = (
    ("database is locked", "is locked by another process, for more than {wait:g} s. Find the process (`fuser` or "
     "`lsof`), end it, and run the same command again. On a network file system use PostgreSQL instead."),
    ("readonly database", "is read-only. Give yourself write permission for the file and its folder, or copy it to "
     "another folder and name the copy."),
    ("disk is full", "cannot grow: the disk is full. Free some space and run the same command again; "
     "everything recorded so far is kept."),
    ("not a database", "is not a database. Name another file, or move this one away."),
    ("Could not decode", "is damaged: a text in it cannot be read. Take your last backup."),
    ("malformed", "is damaged. Keep a copy, then try `sqlite3 FILE .recover | sqlite3 NEW`, or take your last backup."),
    ("disk I/O error", "cannot be read or written: the disk reports an error. Check the disk, then run the same "
     "command again."),
    ("invalid uri authority", "cannot be opened: in SQLite's own URL one / stands before the path, as in file:/PATH."),
    ("unable to open", "cannot be opened. Its folder must exist, and you must have write permission for it."),
)  # fmt: skip

_POSTGRESQL_CODES = {
    "28P01": "refused the password of the URL. Correct it, or put it in ~/.pgpass.",
    "28000": "refuses this user. Check pg_hba.conf on the server, or name another user in the URL.",
    "3D000": "has no such database. Create it with `createdb`, or name another one at the end of the URL.",
    "42501": "does not allow this user to do that. Grant it CREATE on the schema, and privileges on the tables.",
    "25006": "is read-only (a standby?). Name the primary server in the URL.",
    "53100": "has no disk space left. Free some and run the same command again; everything recorded is kept.",
    "55P03": "waited longer for a lock than its lock_timeout. Find who holds it (pg_locks), or raise the limit.",
    "57014": "ended a statement that took longer than its statement_timeout. Raise it for this user, or find out what "
    "slows the server down.",
    "53300": "has no free connection. Raise max_connections, or run fewer searches at once.",
}

# A connection that failed has no SQLSTATE, only the message of libpq.
_POSTGRESQL_WORDS = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    (r'role ".*" (does not exist|is not permitted)', "28000"),
    (r'database ".*" does not exist', "3D000"),
)


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a PostgreSQL error; if the connection failed, it is guessed from the message."""
    original = getattr(error, "orig", error)
    code = getattr(original, "sqlstate", None)
    if code is not None or not type(original).__module__.startswith("psycopg"):
        return code
    words = str(original)
    return next((code for pattern, code in _POSTGRESQL_WORDS if re.search(pattern, words)), None)


def may_pass(error: BaseException) -> bool:
    """Whether a retry may succeed: after a conflict, or while a PostgreSQL server restarts or takes over."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError) or not type(error.orig).__module__.startswith("psycopg"):
        return False
    code = sqlstate(error)
    if code is None:  # no server answered: the connection failed or broke
        return error.connection_invalidated or type(error.orig).__name__ == "OperationalError"
    return code in CONFLICTS | TIMEOUTS | NO_WRITES | GOING_OR_COMING or code.startswith("08")


def is_full(error: BaseException) -> bool:
    """Whether the disk or the quota of the database is full."""
    name = getattr(getattr(error, "orig", None) or error, "sqlite_errorname", None)
    return name in FULL or sqlstate(error) == "53100"


def explain(error: BaseException, place: str, wait: float) -> StoreError | None:
    """What a user can do about `error` at the database `place`; None if it is a bug of ours."""
    original = getattr(error, "orig", None) or error
    words = redacted(" ".join(str(original).split()))
    module = type(original).__module__
    if module.startswith("sqlite3"):
        for sign, advice in _SQLITE:
            if sign in words:
                return StoreError(f"{place} {advice.format(wait=wait)} ({words})")
    if module.startswith("psycopg"):
        code = sqlstate(error)
        if code in _POSTGRESQL_CODES:
            return StoreError(f"{place} {_POSTGRESQL_CODES[code]} ({words})")
        if code is None and type(original).__name__ == "ProgrammingError":  # libpq read the URL before it connected
            return StoreError(f"{place} cannot be reached: an option of the URL is not valid ({words})")
        if may_pass(error):
            return StoreError(
                f"{place} does not answer. Check the host and port in the URL, the server and the network, "
                f"then run the same command again: nothing recorded is lost. ({words})"
            )
    return None
