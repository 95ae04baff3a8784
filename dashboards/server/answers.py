"""A view as a response: HTML, JSON or CSV. The end of the address says which."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jinja2
from markupsafe import Markup

from dashboards.figures.figure import Figure, Heat
from dashboards.figures.plotly import plotly
from dashboards.figures.svg import svg
from dashboards.server import parts
from dashboards.server.cells import breakable, cell, marked, scales
from dashboards.server.compiled import TEMPLATES, Compiled
from dashboards.server.files import modules
from dashboards.server.parameters import BadRequest, NotFound, Parameters
from dashboards.view import Column, Table, View
from nas.report.tables import short, size

if TYPE_CHECKING:  # a report needs no server
    from starlette.requests import Request
    from starlette.responses import Response

PAGES = (
    ("space", "Space"),
    ("lineage", "Lineage"),
    ("audit", "Audit"),
    ("compare", "Compare"),
)  # of a study, in the navigation


# HTML has no control characters. Bidirectional control characters would reverse the text around them.
UNSHOWN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TURNED = re.compile(r"\\u(?:202[a-e]|206[6-9])")  # bidirectional control characters in JSON


_drawn: WeakKeyDictionary[Figure | Heat, Markup] = WeakKeyDictionary()


def _once(figure: Figure | Heat, name: str, draw: Callable[[Figure | Heat, str], Markup]) -> Markup:
    """The markup of a figure, made once: a new training step or another page of a table does not change a figure."""
    if figure not in _drawn:
        _drawn[figure] = draw(figure, name)
    return _drawn[figure]


def _traces(figure: Figure | Heat) -> Markup:
    """JSON for a script element of type application/json: its text cannot end the element."""
    text = _spec(figure)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _spec(figure: Figure | Heat) -> str:
    """The figure for Plotly, as JSON without characters that cannot be shown."""
    return TURNED.sub(r"\\ufffd", as_json(plotly(figure)))


@cache
def environment() -> jinja2.Environment:
    """The templates. Every value is escaped unless it is `Markup`."""
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        bytecode_cache=Compiled(**options),
        undefined=jinja2.StrictUndefined,
        **options,
    )
    made.filters |= {
        "short": short,
        "size": size,
        "cell": cell,
        "breakable": breakable,
        "scales": scales,
        "marked": marked,
    }
    made.globals |= {"once": _once, "svg": lambda figure: Markup(svg(figure)), "plotly": _traces, "modules": modules}
    return made


def html(view: View, parameters: Parameters, path: str) -> str:
    """The page as HTML."""
    template = environment().get_template(view.template)
    own: dict[str, Any] = {"view": view, "parameters": parameters, "path": path, "pages": PAGES}
    text = template.render(own | dict(view.shown) | dict(view.values), tables=view.tables, figures=view.figures)
    return parts.marked(clean(text))


def clean(text: str) -> str:
    """The text with each character that cannot be shown replaced by U+FFFD."""
    return UNSHOWN.sub("\ufffd", text)


@dataclass(frozen=True)
class Packed:
    """A response in the cache. It is compressed, because a page of a large study has a megabyte."""

    content: bytes
    kind: str


def live(page: Packed) -> parts.Live:
    """The parts of a page that change."""
    return parts.live(gzip.decompress(page.content).decode())


def changed(page: Packed, shown: str) -> Packed:
    """The parts that a browser must replace, as JSON. shown: the header with the parts that it shows.

    frame: the digest of the rest of the page. If it differs, the browser must load the whole page.
    """
    found = live(page)
    new = parts.changed(found.parts, parts.shown_by(shown))
    return packed(as_json({"version": found.version, "frame": found.frame, "parts": new}), "application/json")


def written(view: View, ending: str, parameters: Parameters, path: str) -> tuple[str, str]:
    """(text, type) of the view in the form that the address asks for.

    Raises NotFound if the page has no table, BadRequest for an unknown figure or table.
    """
    if ending == ".json" and parameters.text("figure"):
        name = parameters.choice("figure", list(view.figures), "")
        return _spec(view.figures[name]), "application/json"
    if ending == ".json":
        return as_json(view.to_dict()), "application/json"
    if ending == ".csv":
        return as_csv(chosen_table(view, parameters)), "text/csv; charset=utf-8"
    return html(view, parameters, path), "text/html; charset=utf-8"


def chosen_table(view: View, parameters: Parameters) -> Table:
    """The table that `table` names, else the first.

    Raises NotFound if the page has none, BadRequest if there is no table or figure of this name.
    """
    if not view.tables and not view.figures:
        raise NotFound("This page has no table.")
    found: dict[str, Table | Figure | Heat] = {**view.tables, **view.figures}
    chosen = found[parameters.choice("table", list(found), next(iter(found)))]
    if isinstance(chosen, Table):
        return chosen
    rows = chosen.rows(100_000)
    return Table(columns=[Column(key, key) for key in dict.fromkeys(key for row in rows for key in row)], rows=rows)


FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also the full-width forms


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


def packed(text: str, kind: str) -> Packed:
    """The text, compressed."""
    return Packed(gzip.compress(text.encode("utf-8", "backslashreplace"), 3), kind)


def sent(request: Request, found: Packed, status: int = 200) -> Response:
    """The response: compressed if the browser accepts gzip. Browsers must not cache it, because it is private data."""
    from starlette.responses import Response

    headers = {"cache-control": "no-store", "vary": "accept-encoding"}
    content = found.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
    else:
        content = gzip.decompress(content)
    return Response(content, status, headers, media_type=found.kind)


def problem(request: Request, error: Exception, status: int, ending: str) -> Response:
    """A page, or JSON, that names the mistake in a request."""
    text = str(error)
    if ending in (".json", ".csv", ".parts"):
        return sent(request, packed(as_json({"error": text}), "application/json"), status)
    title = "Not found" if isinstance(error, NotFound) else "Bad request" if isinstance(error, BadRequest) else "Sorry"
    view = View(template="problem.html", title=title, values={"message": text})
    return sent(request, packed(html(view, Parameters({}), "/"), "text/html; charset=utf-8"), status)
