"""The content of a report: the page of the study with its figures, architectures, trials and environment."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from dashboards.analysis.layers import lines_of
from dashboards.explorer.process import Worker
from dashboards.figures.architecture import Line, architecture_svg
from dashboards.figures.figure import Figure, Heat, labelled
from dashboards.pages import study as study_page
from dashboards.server.parameters import Parameters
from dashboards.server.sources import Sources, StudyCache
from dashboards.view import Ask, Table, View
from nas.report.data import data_lines
from nas.report.tables import short

MOST_TRIALS = 1000  # in the table: the best trials
PICTURES = 6  # of architectures


@dataclass(frozen=True)
class Drawn:
    """An architecture. lines: of its picture, empty if it cannot be read. text: as YAML."""

    number: int
    scores: str
    lines: list[Line]
    text: str

    def picture(self, *, alone: bool) -> str:
        """The architecture as SVG: with the colours of the page, or, if `alone`, with its own for a file."""
        return architecture_svg(self.lines, title=f"Trial {self.number}", alone=alone)


@dataclass(frozen=True)
class Content:
    """Everything in a report. architectures: the best of those on the front. environment: (subject, text)."""

    view: View
    architectures: list[Drawn]
    front: int  # how many architectures are on the front
    environment: list[tuple[str, str]]


def content(sources: Sources, study: StudyCache) -> Content:
    """The report of a study. Raises StoreError if its database cannot be read."""
    names = [each["name"] for each in study.study.objectives]
    sign = "-" if names and study.table.signs[names[0]] < 0 else ""
    asked = {"per": str(MOST_TRIALS), "purpose": "search"} | ({"sort": f"{sign}{names[0]}"} if names else {})
    ask = Ask(
        sources=sources,
        parameters=Parameters(asked),
        study=study,
        path=study.address,
        worker=Worker(enabled=False),
    )
    view = study_page.view(ask)
    figures = {name: _without_links(figure) for name, figure in view.figures.items() if not figure.is_empty}
    tables = {name: _plain_table(table) for name, table in view.tables.items()}
    view = dataclasses.replace(view, template="report.html", tables=tables, figures=figures)
    return Content(view, *_architectures(study), _environment(study))


def _without_links(figure: Figure | Heat) -> Figure | Heat:
    """The figure without links: a report is a file, and has no other pages."""
    if isinstance(figure, Heat):
        return figure
    return dataclasses.replace(figure, brush="", series=[dataclasses.replace(each, links=()) for each in figure.series])


def _plain_table(table: Table) -> Table:
    columns = [dataclasses.replace(column, sorts=False) for column in table.columns]
    return dataclasses.replace(table, columns=columns, links=(), chosen=None)


def _architectures(study: StudyCache) -> tuple[list[Drawn], int]:
    """The 6 trials of the Pareto front that are best by the first objective, the best first; how many are on it."""
    table = study.table
    if not table.signs:
        return [], 0
    name, sign = next(iter(table.signs.items()))
    front = table.front(list(table.signs))
    order = front[np.argsort(sign * table.values[name][front], kind="stable")][:PICTURES]
    found = []
    for row in order:
        number = int(table.number[row])
        trial = study.reader.trial(study.study.id, number)
        lines, _ = lines_of(study, Worker(enabled=False), trial)
        scores = ", ".join(f"{labelled(each)} {short(float(table.values[each][row]))}" for each in table.signs)
        found.append(Drawn(number, scores, lines, trial.architecture))
    return found, len(front)


def _environment(study: StudyCache) -> list[tuple[str, str]]:
    of = study.study
    lines = [("Tessera", of.version), ("Created", f"{of.created_at:%Y-%m-%d %H:%M} UTC"), ("Seed", str(of.seed))]
    lines += data_lines(of.config.get("data_facts") if isinstance(of.config, dict) else None)
    for found in study.reader.devices().values():
        known = {name: value for name, value in found.items() if name != "key" and isinstance(value, str | int | float)}
        lines.append(("Device", ", ".join(f"{name} {value}" for name, value in known.items() if value)))
    return lines


def value_text(value: str) -> str:
    """A value as text for Markdown, with special characters escaped."""
    text = "".join(each if each.isprintable() else " " for each in value)
    for special, written in (("&", "&amp;"), ("<", "&lt;"), ("\\", "\\\\"), ("|", "\\|"), ("[", "\\["), ("`", "'")):
        text = text.replace(special, written)
    return " ".join(text.split())
