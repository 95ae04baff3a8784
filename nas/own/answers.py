"""Calls of a registered scheduler or strategy, which may be the user's own and break its contract.

An error names it, the call and the line of the user's code. A wrong answer is shown with what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from numbers import Integral
from typing import Any, NoReturn

from nas.errors import AnswerProblem, NasError
from nas.registry import shortened, traceback_of
from searchspace.errors import SpaceError

LONGEST = 200  # characters of one argument in a message


class Refused(AnswerProblem):
    """The answer of `call` is not what was expected. `Answers` adds the name of what answered."""

    def __init__(self, call: str, answer: object, expected: str) -> None:
        super().__init__(f"{call} answered {shown(answer)}. Expected: {expected}.")


class Answers:
    """The answers of `thing`, a `kind` such as "scheduler" that is registered as `name`. problem: the errors raised."""

    def __init__(self, kind: str, name: str, thing: object, problem: type[AnswerProblem]) -> None:
        self.who, self.thing, self.problem = f"The {kind} {name!r}", thing, problem

    def ask(self, method: str, *arguments: object, call: str = "", most: int | None = None) -> Any:
        """What `method` answers. call: the call as text, if not all arguments can be shown.

        most: read an answer of several things into a tuple, but no more than `most` and one: it may be endless. Raises
        a problem for an error, but lets a NasError, a SpaceError or Ctrl-C pass.
        """

        def answered() -> Any:
            answer = getattr(self.thing, method)(*arguments)
            return answer if most is None or not isinstance(answer, Iterable) else tuple(islice(answer, most + 1))

        return self.attempt(lambda: call or called(method, *arguments), answered)

    def attempt(self, call: Callable[[], str], read: Callable[..., Any], *arguments: object) -> Any:
        """`read(*arguments)`, which runs code of the thing or reads its answer to `call`.

        Raises a problem for an error, but lets a NasError, a SpaceError or Ctrl-C pass. If the thing's base class has
        refused an answer, the problem names the thing.
        """
        try:
            return read(*arguments)
        except Refused as error:
            raise self.problem(f"{self.who} broke its contract: {error}") from error
        except (NasError, SpaceError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self.problem(f"{self.who} raised an error in {call()}:\n{traceback_of(error)}") from error

    def refuse(self, call: str, answer: object, expected: str) -> NoReturn:
        """Raise a problem: `call` was answered with something else than `expected`."""
        raise self.problem(f"{self.who} broke its contract: {Refused(call, answer, expected)}")


def called(method: str, *arguments: object) -> str:
    """A call as text."""
    return f"{method}({', '.join(shortened(shown(each), LONGEST) for each in arguments)})"


def shown(answer: object) -> str:
    """`answer` as text; its middle is left out if it is long."""
    try:
        return shortened(repr(answer))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also of a whole number of 4,301 digits
        return f"a {type(answer).__name__} that cannot be written ({type(error).__name__})"


def whole(answer: object) -> int:
    """`answer` as an int, also if it is a whole number of NumPy; -1, which breaks every contract, if it is another."""
    return int(answer) if isinstance(answer, Integral) and not isinstance(answer, bool) else -1
