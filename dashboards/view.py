"""What a page function gets, `Ask`, and what it returns, `View`: values, tables and figures for HTML, JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dashboards.figures.figure import Figure, Heat
from dashboards.server.parameters import Parameters

if TYPE_CHECKING:
    from dashboards.explorer.process import Worker
    from dashboards.server.sources import Sources, StudyCache

PER_PAGE, MOST_PER_PAGE = 50, 1000


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request for a page. path: of the address, without its ending. worker: computes costs with torch."""

    sources: Sources
    parameters: Parameters
    study: StudyCache | None
    path: str
    worker: Worker

    @property
    def of(self) -> StudyCache:
        """The study; only pages of a study ask for it."""
        assert self.study is not None
        return self.study


def crumbs(study: StudyCache) -> list[tuple[str, str]]:
    """The breadcrumbs of a page of `study`: (name, address) of each page above it."""
    return [("Studies", f"{study.source.root}/"), (study.study.name, study.address)]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    kind: text, long, word, path (of a hole), quantity (its name), number, percent, bytes, seconds, code, state or
    sparkline.
    """

    key: str
    label: str
    kind: str = "text"
    sorts: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of one page of a table.

    links: the address that the first column of each row links to. total: the number of rows on all pages. suffix: the
    ending of its parameters `sort` and `page`, if a page has several tables that can be sorted. note: a sentence below
    it, such as how a list was cut. chosen: the trials that
    the reader chose for a comparison; None if rows cannot be chosen.
    """

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    total: int | None = None
    page: int = 1
    per_page: int = PER_PAGE
    sort: str = ""
    descending: bool = False
    links: Sequence[str] = ()
    empty: str = "Nothing yet."
    note: str = ""
    chosen: Collection[int] | None = None
    suffix: str = ""

    @property
    def pages(self) -> int:
        """The number of pages."""
        return max(1, -(-self.count // self.per_page))

    @property
    def count(self) -> int:
        """The number of rows on all pages."""
        return len(self.rows) if self.total is None else self.total

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "columns": [vars(each) for each in self.columns],
            "rows": [dict(row) for row in self.rows],
            "total": self.count,
            "page": self.page,
            "per_page": self.per_page if self.total is not None else len(self.rows),
        }


@dataclass(frozen=True, kw_only=True)
class View:
    """One page. values: for the template and the JSON, in addition to tables and figures."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)  # only for the template
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Figure | Heat] = field(default_factory=dict)
    crumbs: Sequence[tuple[str, str]] = ()
    is_live: bool = False  # whether the page has parts that change by themselves
    is_settled: bool = True  # False: the same request may soon have a better answer, so this one is not kept

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "title": self.title,
            **self.values,
            "tables": {name: table.to_dict() for name, table in self.tables.items()},
            "figures": {name: figure.to_dict() for name, figure in self.figures.items()},
        }


def column_of(asked: str, keys: Collection[str]) -> tuple[str, bool]:
    """The column that `asked` sorts by, and whether descending: `-column`. A metric may itself be called `-x`."""
    return (asked, False) if asked in keys or not asked.startswith("-") else (asked[1:], True)


def paged(
    parameters: Parameters,
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    *,
    link: Callable[[Mapping[str, Any]], str] | None = None,
    empty: str = "Nothing yet.",
    sort: str = "",
    suffix: str = "",
) -> Table:
    """A table of `rows` with the page and the order that the address asks for. Raises BadRequest.

    sort: the default order, as a column or -column.
    """
    sorts = {each.key for each in columns if each.sorts}
    asked = parameters.choice(f"sort{suffix}", sorted(sorts | {f"-{key}" for key in sorts} | {sort}), sort)
    key, descending = column_of(asked, sorts)
    ordered = list(rows)
    if key:
        known = [row for row in ordered if row.get(key) is not None]
        unknown = [row for row in ordered if row.get(key) is None]
        try:
            ordered = sorted(known, key=lambda row: row[key], reverse=descending) + unknown
        except TypeError:  # values of several types
            ordered = sorted(known, key=lambda row: str(row[key]), reverse=descending) + unknown
    per_page = parameters.whole("per", PER_PAGE, 1, MOST_PER_PAGE)
    page = parameters.whole(f"page{suffix}", 1, 1, 10**9)
    shown = ordered[(page - 1) * per_page : page * per_page]
    return Table(
        columns=columns,
        rows=shown,
        total=len(ordered),
        page=page,
        per_page=per_page,
        sort=key,
        descending=descending,
        links=[link(row) for row in shown] if link else (),
        empty=empty,
        suffix=suffix,
    )
