"""The argument of a page function: databases, parameters of the address, study, and the process for costs."""

from __future__ import annotations

from dataclasses import dataclass, field

from dashboards.explorer.process import Worker
from dashboards.server.parameters import Parameters
from dashboards.server.sources import Sources, StudyCache


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request for a page. path: of the address, without its ending."""

    sources: Sources
    parameters: Parameters
    study: StudyCache | None
    path: str
    worker: Worker = field(default_factory=Worker)

    @property
    def of(self) -> StudyCache:
        """The study; only pages of a study ask for it."""
        assert self.study is not None
        return self.study


def crumbs(study: StudyCache, *more: tuple[str, str]) -> list[tuple[str, str]]:
    """The breadcrumbs of a page of `study`: (name, address) of each page above it."""
    return [("Studies", "/"), (study.study.name, study.address), *more]
