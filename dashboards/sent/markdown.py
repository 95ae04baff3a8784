"""The report as Markdown for a pull request, with its pictures as SVG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.figures.svg import svg
from dashboards.sent.content import Content, value_text
from dashboards.server.cells import cell, scales
from dashboards.view import Column, Table

ROWS = 20  # of the best trials


def markdown(content: Content, folder: str) -> tuple[str, dict[str, str]]:
    """(the text, {file name: SVG}). folder: the folder of the pictures in the links of the text."""
    view = content.view
    pictures = {f"{name}.svg": svg(figure, alone=True) for name, figure in content.view.figures.items()}
    parts = [f"# {value_text(view.title)}", value_text(view.shown["phase"])]
    said = [value_text(each) for each in (*view.shown["said"], *view.values["notes"])]
    parts += [f"**{said[0]}**"] if said else []
    parts.append(_facts(view.shown["facts"]))
    if "finals" in view.tables:
        parts += ["## Finals", _table(view.tables["finals"].columns, view.tables["finals"].rows)]
        parts += said[1:]
    for name, figure in sorted(content.view.figures.items(), key=lambda item: item[0] != "verdict"):
        parts += [f"## {value_text(figure.title)}", f"![{value_text(figure.title)}]({folder}/{name}.svg)", figure.note]
    parts += [value_text(each) for each in (*view.values["controls"], *view.values["sentences"])]
    for drawn in content.architectures[:3]:
        parts += [f"## Trial {drawn.number}: {value_text(drawn.scores)}"]
        if drawn.lines:
            pictures[f"trial-{drawn.number}.svg"] = drawn.picture(alone=True)
            parts.append(f"![The architecture of trial {drawn.number}]({folder}/trial-{drawn.number}.svg)")
        parts.append(_folded("YAML", _code("yaml", drawn.text)))
    trials = view.tables["trials"]
    parts += [f"## The best {min(ROWS, len(trials.rows))} trials", _table(trials.columns, trials.rows[:ROWS])]
    if view.tables["failures"].rows:
        parts += ["## Failures", _table(view.tables["failures"].columns, view.tables["failures"].rows)]
    parts += ["## Environment", "\n".join(f"- {name}: {value_text(text)}" for name, text in content.environment)]
    parts.append(_folded("Search file", _code("yaml", view.values["search_file"])))
    return "\n\n".join(part for part in parts if part) + "\n", pictures


def _facts(facts: Sequence[tuple[str, str, str]]) -> str:
    return "\n".join(
        f"- {name}: {value}" + (f" ({value_text(detail)})" if detail else "") for name, value, detail in facts
    )


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "None."
    shown = [column for column in columns if column.kind != "picture"]
    lines = ["| " + " | ".join(value_text(column.label) for column in shown) + " |"]
    lines.append("|" + "|".join("---:" if column.kind in ("number", "seconds") else "---" for column in shown) + "|")
    scaled = scales(Table(columns=shown, rows=rows))
    for row in rows:
        texts = (cell(row.get(column.key), column, scaled[column.key]) for column in shown)
        lines.append("| " + " | ".join(map(value_text, texts)) + " |")
    return "\n".join(lines)


def _code(language: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"
