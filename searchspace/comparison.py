"""All blocks with their papers, the released code and the differences between them.

`python -m searchspace.comparison > docs/published.md` writes the page.

Nothing is written twice. The papers come from the docstring of the block's module, the differences from the field
`published` of its registration.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from searchspace.published import Published
from searchspace.reference import Entry, entries

HEAD = """\
# Blocks and what was published

For each block, this page names the paper that it follows, how its defaults differ from the paper, and how the released
code differs from the paper. The options in parentheses select that other form. [blocks.md](blocks.md) has formulas and
options.

`python -m searchspace.comparison > docs/published.md` makes this page from the code of the blocks. A test checks that
it is up to date.
"""
FOLLOWS = "follows the paper"


def page() -> str:
    """All blocks as a Markdown page, with a table for each family."""
    parts = [HEAD]
    every = sorted(entries(), key=lambda entry: (_family(entry), entry.kind.name))
    for family, group in groupby(every, key=_family):
        parts += [f"## {family}", "", "| block | paper | defaults | released code |", "|---|---|---|---|"]
        parts += [*map(_row, group), ""]
    return "\n".join(parts)


def _family(entry: Entry) -> str:
    return entry.kind.family.replace("_", " ").capitalize()


def _row(entry: Entry) -> str:
    published = entry.kind.published
    papers = "; ".join(_linked(paper["citation"], paper["url"]) for paper in entry.papers)
    if published is None:
        return f"| `{entry.kind.name}` | {papers} | {'not compared' if papers else ''} |  |"
    return f"| `{entry.kind.name}` | {papers} | {_differences(published.paper) or FOLLOWS} | {_released(published)} |"


def _linked(citation: str, url: str) -> str:
    return f"[{citation or url.partition('//')[2]}]({url})"


def _released(published: Published) -> str:
    code = ", ".join(f"[{name}](https://github.com/{name})" if "/" in name else name for name in published.code)
    if not code:
        return ""
    return f"{code}: {_differences(published.released) or 'no difference'}"


def _differences(differences: Mapping[str, str]) -> str:
    texts = [f"{text} ({f'`{options}`' if options else 'no option'})" for text, options in differences.items()]
    return "; ".join(texts).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
