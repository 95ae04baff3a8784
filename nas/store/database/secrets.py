"""Shows where a database is without its password, and without tokens."""

from __future__ import annotations

import re

from sqlalchemy.engine import URL

HIDDEN = "***"

_AFTER_USER = re.compile(r"(?<=://)([^/@\s:]*):\S*@")
_PARAMETER = re.compile(r"(?i)\b(\w*(?:password|token|secret)\s*=\s*)('[^']*'|[^&\s]*)")


def shown(url: URL) -> str:
    """The URL without its password, wherever that is, and without our name of the driver."""
    return redacted(url.render_as_string(hide_password=True)).replace("+psycopg", "")


def option(url: URL) -> str:
    """The URL as a value of `--storage`: a path for a SQLite file, else without its password."""
    is_file = url.get_backend_name() == "sqlite" and not url.query and not (url.database or "").startswith("file:")
    return str(url.database) if is_file else shown(url)


def redacted(text: str) -> str:
    """`text` with the password of every URL and connection string in it hidden, also of those that are malformed."""
    return _PARAMETER.sub(rf"\1{HIDDEN}", _AFTER_USER.sub(rf"\1:{HIDDEN}@", text))


def holds_secret(text: str) -> bool:
    """Whether text that is no URL looks like one with a password, or like a connection string."""
    return re.search(r":[^/\\]*@", text) is not None or _PARAMETER.search(text) is not None
