"""The page that is shown while a large study is read for the first time."""

from __future__ import annotations

from dashboards.pages.asked import Ask, crumbs
from dashboards.view import View


def view(ask: Ask) -> View:
    """A page that asks again by itself."""
    trials = ask.of.reader.next_number(ask.of.study.id)
    return View(
        template="reading.html",
        title=ask.of.study.name,
        values={"trials": trials},
        shown={"address": ask.of.address},
        crumbs=crumbs(ask.of)[:-1],
    )
