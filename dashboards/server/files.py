"""The static files: those of the dashboard, and the script of Plotly's Python package."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

STATIC = Path(__file__).resolve().parent.parent / "static"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
EDITOR = "editor.js"  # only the explorer loads it


@cache
def files() -> dict[str, Path]:
    """The files by name. No other file can be requested."""
    found = {path.name: path for path in STATIC.iterdir() if path.suffix in KINDS}
    plotly = find_spec("plotly")
    if plotly is not None and plotly.origin:
        found["plotly.min.js"] = Path(plotly.origin).parent / "package_data" / "plotly.min.js"
    return found


@cache
def modules() -> list[str]:
    """The scripts of every page. A browser that knows all names can load them at the same time."""
    return sorted(path.name for path in STATIC.glob("*.js") if path.name != EDITOR)
