"""The attribute `settled` of a strategy, scheduler or task, which may be the user's own.

A new study stores the JSON form of these options, and gives it to the constructor again. So they must be options of the
constructor, and it must make the same values of what is stored. Type hints do this for an Enum, a Path or a set.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from nas.errors import AnswerProblem, UsageError
from nas.own.answers import Answers, Refused

DEEPEST = 50  # lists and dicts within each other: pydantic writes 255, and the search file around them takes some
OPTIONS = "a dict of options of the constructor, from names to values"
VALUE = (
    "None, a bool, a finite number, text, a list or dict of these, or another value that the constructor makes again "
    f"from its JSON form because it is of the type of the option's hint; nested at most {DEEPEST} deep"
)
LISTS = (list, tuple, set, frozenset, deque)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def checked(kind: str, name: str, made: object, make: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    """The JSON form of the options that `made` settles, for a new study; none if it has no such attribute.

    kind: what `made` is, such as "strategy". name: what it is registered as. make: makes another one with options.
    Raises AnswerProblem for options that the constructor does not accept, for values that JSON does not hold or that
    the constructor does not make again from it, and for an error of `made`.
    """
    answers = Answers(kind, name, made, AnswerProblem)
    given: dict[str, Any] = answers.attempt(lambda: "settled", _read, made)
    stored: dict[str, Any] = answers.attempt(lambda: "settled", _stored, given)
    try:
        if stored:
            again = answers.attempt(lambda: "its constructor", make, stored)
            answers.attempt(lambda: "settled", _compare, given, stored, again)
    except AnswerProblem:
        raise
    except UsageError as error:
        answers.refuse("settled", stored, f"options that the constructor accepts ({str(error).removesuffix('.')})")
    return stored


def names(kind: str, name: str, made: object) -> list[str]:
    """The names of the options that `made` settles, for a study that has their values. Arguments: as of `checked`.

    Raises AnswerProblem if they are not in a dict, and for an error of `made`.
    """
    return list(Answers(kind, name, made, AnswerProblem).attempt(lambda: "settled", _read, made))


def _read(made: object) -> dict[str, Any]:
    given = getattr(made, "settled", {})
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise Refused("settled", given, OPTIONS)
    return {str.__str__(key): value for key, value in given.items()}


def _stored(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in given.items():
        try:
            found[key] = _json(value)
        except (ValueError, RecursionError):
            raise Refused(f"settled[{key!r}]", value, VALUE) from None
    return found


def _compare(given: Mapping[str, Any], stored: Mapping[str, Any], made: object) -> None:
    """Raise Refused for a value that differs in `made`, which was made with the stored ones."""
    again = getattr(made, "settled", {})
    for key, value in given.items():
        if not _same(value, again.get(key, stored[key])):
            raise Refused(f"settled[{key!r}]", value, VALUE)


def _same(value: Any, again: Any) -> bool:
    """Whether two values are equal, or `again` is a whole JSON form of `value`, such as the text of an Enum.

    The keys of a dict may not have become text.
    """
    if isinstance(value, Mapping) and isinstance(again, Mapping):
        return value.keys() == again.keys() and all(_same(value[key], again[key]) for key in value)
    if isinstance(value, LISTS) and isinstance(again, list | tuple):
        return len(value) == len(again) and all(map(_same, value, again))
    if isinstance(value, np.generic):
        return _same(value.item(), again)
    if isinstance(value, float) or value == again:  # the JSON form of NaN and of infinite numbers is null
        return bool(value == again)
    if type(value) is type(again):  # one that does not define what is equal
        return hasattr(value, "__dict__") and _same(_parts(value), _parts(again))
    return _json(value) == _json(again) and _is_whole(_json(value), value)


def _parts(value: Any) -> dict[str, Any]:
    """The attributes of an object; of a pydantic model, its fields and those that it was given besides."""
    return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}


def _is_whole(form: Any, value: Any) -> bool:
    """Whether the type of `value` makes it again from its JSON form, which may have left something out.

    If pydantic cannot make it from this form, nothing is known, and the constructor may know better.
    """
    try:
        again = TypeAdapter(type(value)).validate_python(form)
    except Exception:  # the type may be the user's own
        return True
    return _same(value, again)


def _json(value: object) -> Any:
    """`value` as a study stores it. Raises ValueError or RecursionError if it has no JSON form or is too deep."""
    text = json.dumps(_ANY.dump_python(value, mode="json", fallback=_plain), ensure_ascii=False)
    found = json.loads(text.encode())  # raises for half of a surrogate pair, which no file can hold
    if _depth(found) > DEEPEST:
        raise ValueError
    return found


def _plain(value: object) -> object:
    """What pydantic does not know, as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
