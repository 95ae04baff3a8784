"""The page that is shown while a large study is read for the first time."""

from __future__ import annotations

from dashboards.pages.asked import Ask, crumbs
from dashboards.pages.studies import known_at_once
from dashboards.view import View


def view(ask: Ask) -> View:
    """What is known before the trials are read. JavaScript updates the page; without JavaScript it reloads itself."""
    found = known_at_once(ask.of)
    budget = f" of {found['budget']:,}" if found["budget"] else ""
    facts = [
        ("State", found["state"], ""),
        ("Trials", f"{found['trials']:,}{budget}", ""),
        ("Failures", f"{found['failures']:,}", ""),
        ("Workers", f"{found['workers']:,}", ""),
    ]
    return View(
        template="reading.html",
        title=ask.of.study.name,
        values={"trials": found["trials"]},
        shown={"address": ask.of.address, "facts": facts},
        crumbs=crumbs(ask.of)[:-1],
    )
