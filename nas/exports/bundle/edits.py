"""Edits a Python text at the positions of its syntax tree, so that comments and layout are preserved."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

Edit = tuple[int, int, str]  # replace the characters from the first to the second by the text


@dataclass
class Text:
    """A Python text with its tree. Positions are numbers of characters."""

    text: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        self._lines = self.text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """The position of a line, from 1, and a column, in bytes of UTF-8."""
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The start and the end of `node`."""
        n: ast.expr = node  # type: ignore[assignment]
        return self.at(n.lineno, n.col_offset), self.at(n.end_lineno or n.lineno, n.end_col_offset or 0)

    def of(self, node: ast.AST) -> str:
        """The text of `node`."""
        start, end = self.span(node)
        return self.text[start:end]

    def first_line(self, node: ast.stmt, *, comments: bool = True) -> int:
        """The first line of a statement, with its decorators and the comments above it."""
        line = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        while comments and line > 1 and self._lines[line - 2].lstrip().startswith("#"):
            line -= 1
        return line

    def lines(self, node: ast.stmt, *, comments: bool = True) -> tuple[int, int]:
        """The start and the end of the complete lines of a statement."""
        return self._starts[self.first_line(node, comments=comments) - 1], self._starts[node.end_lineno or 0]

    def block(self, body: list[ast.stmt], indent: int) -> str:
        """The lines of a block, with `indent` spaces in front of its first level."""
        start, _ = self.lines(body[0])
        text = self.text[start : self._starts[body[-1].end_lineno or 0]]
        return shifted(text, indent - body[0].col_offset)


def shifted(text: str, by: int) -> str:
    """The lines of `text`, moved to the right, or to the left if `by` is negative."""
    if by >= 0:
        return "".join(" " * by + line if line.strip() else line for line in text.splitlines(keepends=True))
    return "".join(line[min(-by, len(line) - len(line.lstrip(" "))) :] for line in text.splitlines(keepends=True))


def applied(text: str, edits: Iterable[Edit]) -> str:
    """`text` after the edits. If two edits overlap, the one that begins first counts, or else the longer one."""
    parts, place = [], 0
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if start < place:
            continue
        parts += [text[place:start], new]
        place = end
    return "".join([*parts, text[place:]])
