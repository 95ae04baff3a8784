"""The report as one HTML file. It needs no script, no other file and no network."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from dashboards.sent.content import Content
from dashboards.server.answers import clean, environment
from dashboards.server.parameters import Parameters

STYLE = Path(__file__).resolve().parent.parent / "static" / "style.css"


def page(content: Content) -> str:
    """The report as HTML."""
    view = content.view
    template = environment().get_template("report.html")
    text = template.render(
        dict(view.shown) | dict(view.values),
        content=content,
        view=view,
        tables=view.tables,
        figures=content.figures,
        parameters=Parameters({}),
        path="",
        style=Markup(STYLE.read_text(encoding="utf-8")),
        markup=Markup,
    )
    return clean(text)
