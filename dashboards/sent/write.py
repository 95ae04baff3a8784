"""Writes a report to files: one HTML file without scripts, or Markdown with its pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.server.serve import check_installed
from nas import location
from nas.errors import UsageError
from nas.files import check_writable, write_whole

if TYPE_CHECKING:
    from dashboards.sent.content import Content

STYLE = Path(__file__).resolve().parent.parent / "static" / "style.css"
SQLITE = b"SQLite format 3\0"


def write(study: str, storage: str | None, path: Path, form: str) -> list[Path]:
    """Write the report of a study as `form`, html or markdown, and return the files, the report first.

    Raises what opening the database raises, ServeError if a library is missing, UsageError if `path` is a database or
    not a regular file, NasError if a file cannot be written, and OSError if a folder cannot be made.
    """
    check_installed()
    from dashboards.sent.content import content
    from dashboards.sent.markdown import markdown
    from dashboards.server.sources import Sources, slug_of

    where = location.storage_of(study, storage)
    opened, found = location.open_existing(study, where)
    opened.close()
    _check_place(path, where)
    sources = Sources([where])
    try:
        source = sources.all()[0]
        made = content(sources, source.study(slug_of(found)))
        folder = path.with_name(f"{path.stem}-pictures")
        text, pictures = (_page(made), {}) if form == "html" else markdown(made, folder.name)
    finally:
        sources.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    if pictures:
        folder.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        write_whole(folder / name, picture.encode("utf-8", "backslashreplace"))
    write_whole(path, text.encode("utf-8", "backslashreplace"))
    return [path, *(folder / name for name in pictures)]


def _page(content: Content) -> str:
    """The report as HTML. It needs no script, no other file and no network."""
    from markupsafe import Markup

    from dashboards.server.answers import html
    from dashboards.server.parameters import Parameters

    style = Markup(STYLE.read_text(encoding="utf-8"))
    return html(content.view, Parameters({}), "", content=content, style=style, markup=Markup)


def form_of(path: Path | None) -> str:
    """The form that the ending of the file asks for: markdown for .md and .markdown, else html."""
    return "markdown" if path is not None and path.suffix.lower() in (".md", ".markdown") else "html"


def default_path(study: str, form: str) -> Path:
    """STUDY.html or STUDY.md in this folder, with other characters of the name replaced by hyphens."""
    name = re.sub(r"[^\w.-]+", "-", study).strip("-.")[:100] or "study"
    return Path(f"{name}.{'html' if form == 'html' else 'md'}")


def _check_place(path: Path, where: str) -> None:
    """Raises UsageError if the report would overwrite a database or something that is not a regular file."""
    if path.parent.is_dir():
        check_writable(path)
    if not path.is_file():
        return
    with path.open("rb") as file:
        is_database = file.read(len(SQLITE)) == SQLITE
    if is_database or path.resolve() == Path(where).resolve():
        raise UsageError(f"{path} is a database: name another file for the report.")
