"""Shows where a database is without its password, and without tokens."""

from __future__ import annotations

import re

from sqlalchemy.engine import URL

HIDDEN = "***"
# Parameters of a URL's query whose values are no secrets. The values of all others are hidden: people misspell
# `password`, and drivers have names of their own for it.
HARMLESS = frozenset(
    (
        *("host", "hostaddr", "port", "dbname", "user", "sslmode", "sslrootcert", "sslcert", "sslcrl", "gssencmode"),
        *("channel_binding", "connect_timeout", "application_name", "client_encoding", "target_session_attrs"),
        *("load_balance_hosts", "tcp_user_timeout", "keepalives", "keepalives_idle", "keepalives_interval"),
        *("keepalives_count", "mode", "uri", "cache", "immutable"),
    )
)

_AFTER_USER = re.compile(r"(?<=://)([^/@\s:]*):\S*@")
_IN_QUERY = re.compile(r"([?&])([^=&\s]*)=([^&\s]*)")
_PLAIN = re.compile(r"(?:[\w.,:/+-]|%2F|%3A)*", re.I)  # a harmless value; `require;password=x` is none
# Of a connection string of libpq: host=a password='b c' user=d
_WORD = re.compile(r"(?i)(?<![?&\w])(\w*(?:pa+s+w|pass|pwd|token|secret|key)\w*\s*=\s*)('[^']*'|[^&\s]*)")


def shown(url: URL) -> str:
    """The URL without its password, wherever that is, and without our name of the driver."""
    return redacted(url.render_as_string(hide_password=True)).replace("+psycopg", "")


def option(url: URL) -> str:
    """The URL as a value of `--storage`: a path for a SQLite file, else without its password."""
    is_file = url.get_backend_name() == "sqlite" and not url.query and not (url.database or "").startswith("file:")
    return str(url.database) if is_file else shown(url)


def redacted(text: str) -> str:
    """`text` with the password of every URL and connection string in it hidden, also of those that are malformed."""
    text = _IN_QUERY.sub(_parameter, _AFTER_USER.sub(rf"\1:{HIDDEN}@", text))
    return _WORD.sub(rf"\1{HIDDEN}", text)


def _parameter(found: re.Match[str]) -> str:
    sign, name, value = found.groups()
    is_harmless = name.lower() in HARMLESS and _PLAIN.fullmatch(value)
    return f"{sign}{name}={value if is_harmless else HIDDEN}"


def holds_secret(text: str) -> bool:
    """Whether text that is no URL looks like one with a password, or like a connection string."""
    return re.search(r":[^/\\]*@", text) is not None or _WORD.search(text) is not None
