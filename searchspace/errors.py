"""Errors in descriptions, with the place and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from searchspace.tree import Mark


@dataclass(frozen=True)
class Problem:
    """One mistake: what was found, what was expected, the place in the file and the path in the tree."""

    message: str
    mark: Mark | None = None
    path: str = ""

    def __str__(self) -> str:
        place = f"{self.mark.source}:{self.mark.line}: " if self.mark else ""
        path = f"{self.path}: " if self.path else ""
        return f"{place}{path}{self.message}"


class SpaceError(ValueError):
    """Raised for a file, space or architecture that is invalid. `problems` lists all mistakes."""

    def __init__(self, problems: Iterable[Problem] | str):
        self.problems = [Problem(problems)] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self):  # exceptions cross process boundaries
        return type(self), (self.problems,)


def nearest(name: str, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?" for the known name nearest to `name`, or "" if none is near."""
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
