"""Writes a report to files."""

from __future__ import annotations

from pathlib import Path

from dashboards.server.serve import check_installed
from nas import location


def write(study: str, storage: str | None, path: Path, form: str) -> list[Path]:
    """Write the report of a study as `form`, html or markdown, and return the files, the report first.

    Raises what opening the database raises, ServeError if a library is missing, and OSError.
    """
    check_installed()
    from dashboards.sent.content import content
    from dashboards.sent.markdown import markdown
    from dashboards.sent.page import page
    from dashboards.server.sources import Sources, slug_of

    where = location.storage_of(study, storage)
    opened, found = location.open_existing(study, where)
    opened.close()
    sources = Sources([where])
    try:
        source = sources.all()[0]
        made = content(sources, source.study(slug_of(found)))
        folder = path.with_name(f"{path.stem}-pictures")
        text, pictures = (page(made), {}) if form == "html" else markdown(made, folder.name)
    finally:
        sources.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    if pictures:
        folder.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        (folder / name).write_text(picture, encoding="utf-8", errors="backslashreplace")
    return [path, *(folder / name for name in pictures)]
