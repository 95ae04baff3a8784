"""A strategy whose answers are checked before anything is done with them: a user's own one may break the contract."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.errors import AnswerProblem
from nas.options import MOST
from nas.own.answers import Answers, Refused, whole
from nas.strategies.contract import Proposal, Result, Started, Strategy
from searchspace.errors import SpaceError

if TYPE_CHECKING:
    from searchspace.space.point import Point
    from searchspace.space.space import Space


MOST_PARENTS = 256  # of one proposal; ours have two at most
LONGEST_OPERATOR = 200  # characters
JOINER = "\u200d"  # of emoji
PARENTS = f"a proposal whose parents are a tuple of numbers of trials (ints), at most {MOST_PARENTS}"
OPERATOR = f'a proposal whose operator is text on one line, at most {LONGEST_OPERATOR} characters, such as "mutation"'


class StrategyProblem(AnswerProblem):
    """A strategy gave an answer that breaks its contract, or raised an error."""


class CheckedStrategy:
    """Passes all calls on to `strategy`, which is registered as `name` and proposes points of `space`.

    Its methods raise StrategyProblem for an answer that breaks the contract in `nas.strategies.contract`, and for an
    error of `strategy`. A SpaceError names the strategy too. Scalars of NumPy become numbers and texts of Python.
    Points are made again from their choices, or from the text of their architecture.
    """

    def __init__(self, name: str, strategy: Strategy, space: Space) -> None:
        self.name, self.strategy, self.space = name, strategy, space
        self._answers = Answers("strategy", name, strategy, StrategyProblem)

    def ask(self, number: int, count: int = 1, attempt: int = 0) -> list[Proposal]:
        """See `Strategy.ask`. Raises StrategyProblem, SpaceError or NothingLeft."""
        call = f"ask({number}, {count}, {attempt})"
        answer = self._ask(call, "ask", number, count, attempt, most=count)
        if not isinstance(answer, tuple) or len(answer) > count:
            self._answers.refuse(call, answer, f"a list of Proposal(point, operator, parents), at most {count}")
        return [self._proposal(each, call, trial) for trial, each in enumerate(answer, number)]

    def start(self, started: Started) -> None:
        """See `Strategy.start`. Raises StrategyProblem or SpaceError."""
        self._ask(f"start(Started({started.number}, ...))", "start", started)

    def tell(self, result: Result) -> None:
        """See `Strategy.tell`. Raises StrategyProblem or SpaceError."""
        self._ask(f"tell(Result({result.number}, rung={result.rung}, ...))", "tell", result)

    def failure_summary(self) -> str:
        """How architectures failed, if the strategy can say it. Raises StrategyProblem."""
        if not hasattr(self.strategy, "failure_summary"):
            return ""
        answer = self._ask("failure_summary()", "failure_summary")
        if not isinstance(answer, str):
            self._answers.refuse("failure_summary()", answer, "text")
        return answer

    def _ask(self, call: str, method: str, *arguments: object, most: int | None = None) -> Any:
        try:
            return self._answers.ask(method, *arguments, call=call, most=most)
        except SpaceError as error:  # clear, but the strategy may have caused it with a value that does not fit
            raise SpaceError(f"The strategy {self.name!r} in {call}: {error}") from error

    def _proposal(self, answer: object, call: str, trial: int) -> Proposal:
        """The proposal for `trial` of an answer of `ask`, in plain Python values."""
        found, expected = self._answers.attempt(lambda: call, _read, answer, trial, self.space)
        if found is None:
            self._answers.refuse(call, [answer], expected)
        return found


def _read(answer: object, trial: int, space: Space) -> tuple[Proposal | None, str]:
    """`plain(answer)` for `trial` with its point made again, or (None, what it must be and is not)."""
    found, expected = plain(answer)
    if found is None:
        return None, expected
    if max(found.parents, default=-1) >= trial:  # pending ones and those before it in its batch are earlier too
        return None, f"a proposal for trial {trial}, whose parents are earlier trials"
    point, expected = _made(found.point, space)
    return None if point is None else replace(found, point=point), expected


def plain(answer: object) -> tuple[Proposal | None, str]:
    """(`answer` as a proposal in plain Python values, "") or (None, what it must be and is not)."""
    if not isinstance(answer, Proposal):
        return None, "a Proposal(point, operator, parents)"
    point, operator, parents = answer.point, answer.operator, answer.parents
    choices, hash = getattr(point, "choices", None), getattr(getattr(point, "architecture", None), "hash", None)
    if not isinstance(choices, Mapping) or not isinstance(hash, str):
        return None, "a proposal whose point has choices and an architecture, such as space.sample(rng)"
    if not isinstance(operator, str) or len(operator) > LONGEST_OPERATOR or not all(map(_is_shown, operator)):
        return None, OPERATOR
    if not isinstance(parents, Collection) or isinstance(parents, str | bytes | Mapping):
        return None, PARENTS
    numbers = tuple(map(whole, islice(parents, MOST_PARENTS + 1)))
    if len(numbers) > MOST_PARENTS or not all(0 <= each <= MOST for each in numbers):
        return None, PARENTS
    return Proposal(point, str.__str__(operator), numbers), ""


def _is_shown(character: str) -> bool:
    """Whether a character is text on a line; a space of any width is, and what joins the parts of an emoji."""
    return character.isprintable() or character == JOINER or unicodedata.category(character) == "Zs"


def check_proposed(answer: object, call: Callable[[], str]) -> Proposal:
    """`answer`, a proposal in plain Python values. Raises Refused if it is none; `call` is what was answered."""
    found, expected = plain(answer)
    if found is None:
        raise Refused(call(), answer, expected)
    return found


def _made(point: Point, space: Space) -> tuple[Point | None, str]:
    """(the point that a study makes again from what it stores of `point`, "") or (None, what it must be and is not).

    The architecture of `point` may be deferred or of a class of the user's own, so it may not be the one that it names.
    """
    from searchspace.language.schema import same
    from searchspace.model.architecture import Architecture
    from searchspace.space.point import Point

    choices, given = {path: _own(each) for path, each in dict(point.choices).items()}, point.architecture
    if not isinstance(given, Architecture):
        return None, "a proposal whose point has an Architecture"
    try:  # without choices it may lie outside the space, as a baseline does
        made = space.point(choices) if choices else Point({}, Architecture.parse(given.text()))
    except SpaceError as error:
        return None, f"a point of the space ({error})" if choices else f"an architecture whose text is valid ({error})"
    if made.architecture.hash != given.hash:
        return None, f"a point whose architecture is the one that its {'choices give' if choices else 'text describes'}"
    if type(given) is Architecture and same(given.root, made.architecture.root):
        return Point(made.choices, given), ""  # its tree has kept what was computed of it: 0.1 ms less to store it
    return made, ""


def _own(value: Any) -> Any:
    """A scalar of NumPy as Python's own; other values as they are."""
    return value.item() if isinstance(value, np.generic) else value
