"""Which page answers an address."""

from __future__ import annotations

from collections.abc import Callable

from dashboards.pages import audit, compare, explorer, latency, lineage, space, studies, study, trial, tuning
from dashboards.pages.asked import Ask
from dashboards.server.parameters import NotFound
from dashboards.server.sources import Sources, StudyCache
from dashboards.view import View

Page = Callable[[Ask], View]
TOP: dict[str, Page] = {"": studies.view, "index": studies.view, "tuning": tuning.view, "explorer": explorer.view}
OF_STUDY: dict[str, Page] = {
    "": study.view,
    "compare": compare.view,
    "space": space.view,
    "lineage": lineage.view,
    "audit": audit.view,
}


def find(sources: Sources, path: str) -> tuple[Page, StudyCache | None]:
    """The page at this path, and the study that it is about. Raises NotFound or StoreError."""
    words = path.strip("/").split("/")
    if len(words) == 1 and words[0] in TOP:
        return TOP[words[0]], None
    if words == ["tuning", "latency"]:
        return latency.view, None
    if words[0] == "studies" and len(words) in (3, 4) and (len(words) == 3 or words[3] in OF_STUDY):
        return OF_STUDY[words[3] if len(words) == 4 else ""], sources.study(words[1], words[2])
    if words[0] == "studies" and len(words) == 5 and words[3] == "trials":
        return trial.view, sources.study(words[1], words[2])
    raise NotFound("There is no such page. The list of studies leads to all pages.")
