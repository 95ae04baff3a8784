"""A view in the form that the end of the address asks for: HTML, JSON or CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dashboards.figures.figure import Figure, Heat
from dashboards.figures.svg import svg
from dashboards.server.cells import breakable, cell, marked, scales
from dashboards.server.parameters import BadRequest, NotFound, Parameters
from dashboards.view import Ask, Column, Table, View
from nas.report.tables import short, size

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
# HTML has no control characters. Bidirectional control characters would reverse the text around them.
UNSHOWN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also the full-width forms


@dataclass(frozen=True)
class Written:
    """The content of a response, and its media type."""

    content: bytes
    kind: str

    @property
    def etag(self) -> str:
        """A digest of the content: an open page asks whether it still shows this."""
        return f'"{blake2b(self.content, digest_size=12).hexdigest()}"'


def written(view: View, ending: str, ask: Ask) -> Written:
    """The view in the form that the address asks for.

    Raises NotFound if the page has no table, BadRequest for an unknown table or an invalid zoom.
    """
    if ending == ".json":
        return Written(as_json(view.to_dict()).encode(), "application/json")
    if ending == ".csv":
        return Written(_encoded(as_csv(chosen_table(view, ask.parameters))), "text/csv")
    figures = {name: _zoomed(figure, ask.parameters.zoom(name)) for name, figure in view.figures.items()}
    view = dataclasses.replace(view, figures=figures)
    return Written(_encoded(html(view, ask.parameters, ask.path, ask.sources.root)), "text/html")


def problem(error: Exception, ending: str, root: str) -> Written:
    """A page, or JSON, that names the mistake in a request."""
    if ending:
        return Written(as_json({"error": str(error)}).encode(), "application/json")
    title = "Not found" if isinstance(error, NotFound) else "Bad request" if isinstance(error, BadRequest) else "Sorry"
    view = View(template="problem.html", title=title, values={"message": str(error)})
    return Written(_encoded(html(view, Parameters({}), "", root)), "text/html")


def html(view: View, parameters: Parameters, path: str, root: str = "", **more: Any) -> str:
    """The page as HTML. root: see `Sources`. more: for the template."""
    own: dict[str, Any] = {"view": view, "parameters": parameters, "path": path, "root": root, **more}
    values = own | dict(view.shown) | dict(view.values)
    text = environment().get_template(view.template).render(values, tables=view.tables, figures=view.figures)
    return UNSHOWN.sub("\ufffd", text)


@cache
def environment() -> jinja2.Environment:
    """The templates. Every value is escaped unless it is `Markup`."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"short": short, "size": size, "cell": cell, "breakable": breakable, "scales": scales, "marked": marked}
    made.filters |= filters
    made.globals |= {"svg": _drawn}
    return made


@lru_cache(maxsize=100)
def _drawn(figure: Figure | Heat, width: int) -> Markup:
    """The picture of a figure, made once: a training step or another page of a table does not change a figure."""
    return Markup(svg(figure, width=width))


def _zoomed(figure: Figure | Heat, zoom: tuple[float, float, float, float] | None) -> Figure | Heat:
    """The figure with only this part visible."""
    if zoom is None or isinstance(figure, Heat):
        return figure
    x, y = (dataclasses.replace(axis, bounds=ends) for axis, ends in ((figure.x, zoom[:2]), (figure.y, zoom[2:])))
    return dataclasses.replace(figure, x=x, y=y)


def chosen_table(view: View, parameters: Parameters) -> Table:
    """The table that `table` names, else the first. The name of a figure chooses its numbers.

    Raises NotFound if the page has none, BadRequest if there is no table or figure of this name.
    """
    found: dict[str, Table | Figure | Heat] = {**view.tables, **view.figures}
    if not found:
        raise NotFound("This page has no table.")
    chosen = found[parameters.choice("table", list(found), next(iter(found)))]
    if isinstance(chosen, Table):
        return chosen
    rows = chosen.rows(100_000)
    return Table(columns=[Column(key, key) for key in dict.fromkeys(key for row in rows for key in row)], rows=rows)


def as_csv(table: Table) -> str:
    """The rows below a line of column names. Text that a spreadsheet would read as a formula gets an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([_harmless(column.key) for column in table.columns])
    for row in table.rows:
        writer.writerow([_harmless(row.get(column.key)) for column in table.columns])
    return file.getvalue()


def _harmless(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return _harmless(" ".join(map(str, value)))
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(FORMULAS) else value


def as_json(value: Any) -> str:
    """The value as JSON. Numbers that are not finite become null."""
    return json.dumps(_plain(value), default=_other, ensure_ascii=True, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _other(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(vars(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
