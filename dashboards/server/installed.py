"""Which libraries the pages and reports need. Imports none of them."""

from __future__ import annotations

from importlib.util import find_spec

from nas.errors import NasError

NEEDED = ("starlette", "uvicorn", "jinja2", "plotly")


class ServeError(NasError):
    """The server cannot start, or a report cannot be made."""


def check_installed() -> None:
    """Check the libraries that the pages need. Raises ServeError if one is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ServeError(f'The dashboard needs {", ".join(missing)}: pip install "tessera-nas[dashboard]".')
