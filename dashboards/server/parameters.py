"""The parameters of an address, checked: each has a type, a default and bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlencode

from nas.numbers import LAST, number_of
from searchspace.errors import nearest

LISTS = ("trials",)  # without JavaScript a form repeats the name for each checked box
MOST_TEXT = 200  # characters of a search text
MOST_VALUE = 1e300  # of an end of an axis: the difference of two ends must be finite too


class BadRequest(Exception):
    """A parameter of the address is invalid; the message says what was expected."""


class NotFound(Exception):
    """The address does not exist; the message names what does."""


class Parameters:
    """The query of an address. The methods that read a parameter raise BadRequest if it is given and invalid."""

    def __init__(self, query: Mapping[str, str]):
        self._query = dict(query)

    def text(self, name: str, default: str = "") -> str:
        """A short text. Raises BadRequest if it is too long."""
        found = self._query.get(name, default)
        if len(found) > MOST_TEXT:
            raise BadRequest(f"{name} must have at most {MOST_TEXT} characters, but has {len(found)}.")
        return found

    def long_text(self, name: str, most: int) -> str:
        """A text of at most `most` characters. Raises BadRequest if it is longer."""
        found = self._query.get(name, "")
        if len(found) > most:
            raise BadRequest(f"{name} must have at most {most} characters, but has {len(found)}.")
        return found

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of several words. Raises BadRequest for any other word."""
        found = self._query.get(name) or default
        if found not in choices:
            close = nearest(found[:MOST_TEXT], list(choices))
            raise BadRequest(f"{name} must be one of {', '.join(choices) or 'nothing'}.{close}")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """True for yes, False for no. Raises BadRequest for any other word."""
        return self.choice(name, ("yes", "no"), "yes" if default else "no") == "yes"

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`. Raises BadRequest for anything else."""
        written = self._query.get(name)
        if written is None or written == "":
            return default
        return _whole(name, written, low, high)

    def trials(self, name: str, most: int) -> list[int]:
        """The numbers of up to `most` trials, written 7 or final-2, separated by commas.

        Each number is returned once. Raises BadRequest for anything else.
        """
        written = [part.strip() for part in self._query.get(name, "")[:5000].split(",") if part.strip()]
        if len(written) > most:
            raise BadRequest(f"{name} must have at most {most} trials, but has {len(written)}.")
        numbers = {part: number_of(part) for part in written}
        for part, number in numbers.items():
            if number is None or number > LAST:
                raise BadRequest(f"{name} must be numbers of trials, such as 7 or final-2, but got {part[:20]!r}.")
        return list(dict.fromkeys(number for number in numbers.values() if number is not None))

    def zoom(self, figure: str) -> tuple[float, float, float, float] | None:
        """The visible part of a figure, `view_FIGURE` = LEFT,RIGHT,LOW,HIGH; None for all of it.

        Raises BadRequest for anything else.
        """
        name = f"view_{figure}"
        if not (written := self._query.get(name)):
            return None
        try:
            left, right, low, high = (float(part) for part in written[:MOST_TEXT].split(","))
        except ValueError:
            raise BadRequest(f"{name} must be four numbers: LEFT,RIGHT,LOW,HIGH.") from None
        if not (-MOST_VALUE <= left < right <= MOST_VALUE and -MOST_VALUE <= low < high <= MOST_VALUE):
            raise BadRequest(f"{name} must be LEFT,RIGHT,LOW,HIGH, each from {-MOST_VALUE:g} to {MOST_VALUE:g}.")
        return left, right, low, high

    def changed(self, **changes: object) -> str:
        """The query with these changes, for a link; None removes a parameter."""
        query = self._query | {name: str(value) for name, value in changes.items() if value is not None}
        query = {name: value for name, value in query.items() if changes.get(name, "") is not None}
        return "?" + urlencode(query)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """A value that identifies this query."""
        return tuple(sorted(self._query.items()))

    def items(self) -> list[tuple[str, str]]:
        """All parameters as they are written."""
        return list(self._query.items())


def joined(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """{name: value} of a query. If a name is repeated, the last value counts; values of a list are joined by commas."""
    query = dict(pairs)
    for name in LISTS:
        if name in query:
            query[name] = ",".join(value for key, value in pairs if key == name)
    return query


def _whole(name: str, written: str, low: int, high: int) -> int:
    text = written.strip()
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()) or len(text) > 18:
        raise BadRequest(f"{name} must be a whole number.")
    if not low <= int(text) <= high:
        raise BadRequest(f"{name} must be from {low} to {high}, but is {int(text)}.")
    return int(text)
