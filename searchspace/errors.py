"""Errors in descriptions, with the place and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from searchspace.suggestions import nearest as nearest
from searchspace.tree import Mark

LONGEST = 2_000  # characters of one problem in a message
LONGEST_OF_ALL = 12_000  # characters of a message with many problems


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
    """Raised for a file, space or architecture that is invalid. `problems` lists all mistakes.

    The message stays short: it names the first problems, and the number of the others.
    """

    def __init__(self, problems: Iterable[Problem] | str):
        self.problems = [Problem(problems)] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(several([str(problem) for problem in self.problems])))

    def __reduce__(self):  # exceptions cross process boundaries
        return type(self), (self.problems,)


def several(messages: Sequence[str]) -> list[str]:
    """The first of `messages`, each cut to `LONGEST` characters, and how many more there are.

    All together have little more than `LONGEST_OF_ALL` characters.
    """
    shown: list[str] = []
    room = LONGEST_OF_ALL
    for message in messages:
        if shown and room < len(message[:LONGEST]):
            return [*shown, f"... and {len(messages) - len(shown):,} more problems."]
        shown.append(shortened(message))
        room -= len(shown[-1])
    return shown


def shortened(message: str, longest: int = LONGEST) -> str:
    """`message`, with its middle left out if it has more than `longest` characters."""
    if len(message) <= longest:
        return message
    return f"{message[: longest * 2 // 3]} ... {message[-longest // 3 + 5 :]}"
