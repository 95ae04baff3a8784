"""A registry: things found by name in the modules of a package, built from options that are validated first.

A registered thing is a class or a function. Its options are the parameters that the caller does not give, and their
type hints say which values are valid. So the names, types and defaults of its options are written only there.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nas.errors import UsageError
from searchspace.suggestions import nearest as nearest

if TYPE_CHECKING:
    import pydantic

Thing = TypeVar("Thing", bound=Callable[..., Any])

MOST_MISTAKES = 20  # that one message lists: a file may hold any number of them
LONGEST = 500  # characters of one of several mistakes
UNNAMED = ""  # the key of an option written without its name: `optuna: TPESampler`


class Registry:
    """The things of one kind that the modules of `package` register.

    kind: what people call one of them, such as "strategy". given: parameters that the caller fills in, so they are not
    options. offered: such parameters that a thing may leave out. Modules whose names begin with
    an underscore are parts of others and are not looked through.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        given: Iterable[str] = (),
        offered: Iterable[str] = (),
    ) -> None:
        self.kind = kind
        self.package = package
        self.offered = frozenset(offered)
        self.given = frozenset(given) | self.offered
        self._things: dict[str, Callable[..., Any]] = {}
        self._sought: set[str] = set()  # names whose modules were looked for

    def register(self, name: str) -> Callable[[Thing], Thing]:
        """A decorator that registers a class or function as `name`. Raises ValueError if another one has that name."""

        def add(thing: Thing) -> Thing:
            known = self._things.get(name)
            if known and known.__qualname__ != thing.__qualname__:
                raise ValueError(f"The {self.kind} {name!r} is defined twice: {known} and {thing}.")
            self._things[name] = thing
            return thing

        return add

    @cached_property
    def _all(self) -> dict[str, Callable[..., Any]]:
        self._discover(self.package)
        return self._things

    def _discover(self, package: str, only: str | None = None) -> None:
        """Import the modules of `package`, or `only` the one of this name, and of the packages inside it."""
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if not module.name.startswith("_") and only in (None, module.name):
                importlib.import_module(f"{package}.{module.name}")
                if module.ispkg:
                    self._discover(f"{package}.{module.name}")

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._all)

    def name(self, name: str) -> str:
        """`name`, if something has it. Raises UsageError with the nearest valid name."""
        known = self._all
        if name not in known:
            raise UsageError(
                f"No {self.kind} is called {name!r}.{nearest(name, known)} Known: {', '.join(sorted(known))}."
            )
        return name

    def find(self, name: str) -> Any:
        """The thing called `name`. Raises UsageError with the nearest valid name.

        The module of the same name is imported first. If it registers the thing, the others are not imported.
        """
        if "_all" not in vars(self) and name not in self._sought:
            self._sought.add(name)
            self._discover(self.package, only=name)
        return self._things[name] if name in self._things else self._all[self.name(name)]

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """The options that `name` accepts, in order. Raises UsageError for an unknown name."""
        return options(self.find(name), self.given)

    def check(self, name: str, written: Mapping[str, Any]) -> dict[str, Any]:
        """`written` as values of the declared types. Raises UsageError for an unknown name or an invalid option."""
        return checked(self.find(name), written, f"{self.kind} {name!r}", self.given)

    def complete(self, name: str, written: Mapping[str, Any], known: Mapping[str, Any] = {}) -> dict[str, Any]:
        """Every option of `name`, see `completed`. Raises UsageError for an unknown name."""
        return completed(self.find(name), written, known, self.given)

    def make(self, name: str, given: Mapping[str, Any], written: Mapping[str, Any]) -> Any:
        """Call the thing called `name` with what the caller gives and the options `written` by the user.

        Raises UsageError for an unknown name, an invalid option, and ValueError or TypeError of the thing itself.
        """
        thing = self.find(name)
        values = self.check(name, written)
        known = inspect.signature(thing).parameters
        given = {key: value for key, value in given.items() if key in known or key not in self.offered}
        try:
            return thing(**given, **values)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{self.kind} {name!r}: {error}") from error


def options(thing: Callable[..., Any], given: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """The parameters of `thing` that are options: all but those in `given`, `*args` and `**kwargs`.

    A class that passes its `**kwargs` on names their receiver, whose options it has too, in `passes_options_to`.
    """
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(thing).parameters.values()
    own = {each.name: each for each in parameters if each.kind not in variable and each.name not in set(given)}
    receiver = getattr(thing, "passes_options_to", None)
    return own if receiver is None else {**own, **options(receiver, {*given, *own})}


def checked(
    thing: Callable[..., Any], written: Mapping[str, Any], what: str, given: Iterable[str] = ()
) -> dict[str, Any]:
    """`written` options of `thing` as values of the types that its signature declares.

    The key '' is the first option, written without its name. If `thing` takes `**kwargs`, other
    options pass unchecked. Raises UsageError that begins with `what` and names, for every mistake, the option, the
    value and what is valid.
    """
    given = frozenset(given)
    accepted = options(thing, given)
    hints = _hints(thing, tuple(accepted))
    receiver = getattr(thing, "passes_options_to", None)
    if receiver is not None:
        hints = {**_hints(receiver, tuple(accepted)), **hints}
    open_ended = receiver is None and any(
        each.kind is each.VAR_KEYWORD for each in inspect.signature(thing).parameters.values()
    )
    values: dict[str, Any] = {}
    mistakes: list[str] = []  # each continues the sentence that begins with `what`
    for key, value in written.items():
        if len(mistakes) == MOST_MISTAKES:
            raise UsageError(all_mistakes(what, mistakes))
        name = next(iter(accepted), UNNAMED) if key == UNNAMED else key
        if name in accepted:
            try:
                values[name] = converted(hints.get(name, Any), value, name)
            except ValueError as error:
                values[name] = value
                mistakes.append(str(error))
        elif name == UNNAMED:
            mistakes.append(f" takes no options, but got {value!r}.")
        elif open_ended and name not in given:
            values[name] = value
        else:
            known = f"Its options: {', '.join(accepted)}." if accepted else "It takes no options."
            mistakes.append(f" has no option {name!r}.{nearest(name, accepted)} {known}")
    required = [name for name, each in accepted.items() if each.default is each.empty]
    mistakes += [f" needs the option {name!r}." for name in required if name not in values]
    if mistakes:
        raise UsageError(all_mistakes(what, mistakes))
    return values


def completed(
    thing: Callable[..., Any], written: Mapping[str, Any], known: Mapping[str, Any] = {}, given: Iterable[str] = ()
) -> dict[str, Any]:
    """The options of `thing`: as `written`, else as `known`, else the default, as plain data for JSON.

    An option that was written without its name gets it. A default that JSON cannot hold stays left out.
    """
    accepted = options(thing, given)
    first = next(iter(accepted), UNNAMED)
    defaults = {name: each.default for name, each in accepted.items() if _is_plain(each.default)}
    named = {first if name == UNNAMED else name: value for name, value in written.items()}
    return {**json.loads(json.dumps(defaults)), **known, **named}


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def all_mistakes(what: str, mistakes: Sequence[str]) -> str:
    """One mistake as the end of a sentence that begins with `what`; several as a list, one a line.

    The middle of a long mistake is left out.
    """
    if len(mistakes) == 1:
        return f"{what}{shortened(mistakes[0], 2 * LONGEST)}"
    listed = "".join(f"\n  - {shortened(each.lstrip(' ,:'))}" for each in mistakes)
    more = "at least " if len(mistakes) >= MOST_MISTAKES else ""
    return f"{what} has {more}{len(mistakes)} mistakes:{listed}"


def shortened(message: str, longest: int = LONGEST) -> str:
    """`message` without its middle if it has more than `longest` characters."""
    return message if len(message) <= longest else f"{message[: longest // 2]} ... {message[-longest // 2 :]}"


FORMS = {"dictionary": "a mapping", "tuple": "a list", "list": "a list"}  # the words of YAML
TOO_LARGE = "Unable to parse input string as an integer, exceeded maximum size"  # also of numbers


def plain_message(message: str) -> str:
    """A message of pydantic in plain English: 'Input should be greater than 1' -> 'must be greater than 1'."""
    if message == TOO_LARGE:
        return "must be a smaller whole number"
    message = re.sub(r" after validation, not \d+$", "", message)
    message = re.sub(r"a valid (dictionary|tuple|list)( or instance of \w+)?", lambda found: FORMS[found[1]], message)
    return re.sub(
        r"^(Value error, |(Input|String|List|Tuple|Dictionary|Set) should (?=be|have|match))",
        lambda found: "" if found[0] == "Value error, " else "must ",
        message,
    )


@cache
def _hints(thing: Callable[..., Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The type hints of these parameters alone: the others may name types that are imported only for type checkers.

    An option whose hint names such a type has no hint here, so its value is not checked.
    """
    function: Any = inspect.unwrap(thing.__init__ if isinstance(thing, type) else thing)  # type: ignore[misc]
    written = getattr(function, "__annotations__", {})
    found: dict[str, Any] = {}
    for name in written.keys() & set(names):
        one = SimpleNamespace(__annotations__={name: written[name]})
        with contextlib.suppress(NameError):
            found |= get_type_hints(one, getattr(function, "__globals__", {}), include_extras=True)
    return found


def converted(hint: Any, value: Any, option: str) -> Any:
    """`value` converted to the type `hint`. Raises ValueError with the end of a sentence that begins with the part."""
    try:
        import pydantic
    except ImportError:  # a machine without pydantic, for measurements only: the thing's own checks remain
        return value
    try:
        found = _validator(hint).validate_python(value)
    except pydantic.ValidationError as error:
        inner, message, wrong = _mistake(hint, value, error.errors())
        place = ".".join([option, *inner])
        near = nearest(value, get_args(hint)) if get_origin(hint) is Literal and isinstance(value, str) else ""
        raise ValueError(f", option {place!r}: {message}, but got {wrong!r}.{near}") from error
    if isinstance(value, bool) and type(found) in (int, float):  # pydantic reads true as 1
        raise ValueError(f", option {option!r}: must be a number, but got {value!r}.")
    return found


def _mistake(hint: Any, value: Any, errors: Sequence[Mapping[str, Any]]) -> tuple[list[str], str, Any]:
    """Where in `value` the first mistake is, what is wrong (of several types, what each of them says), and the value
    that stands there.
    """
    messages = [plain_message(each["msg"]).rstrip(".") for each in errors]
    places = [[str(part) for part in each["loc"]] for each in errors]
    if not _is_union(hint):
        return places[0], messages[0], errors[0]["input"] if places[0] else value
    deepest = max(range(len(places)), key=lambda number: len(places[number]))
    if len(places[deepest]) > 1:  # the first part names the type
        return places[deepest][1:], messages[deepest], errors[deepest]["input"]
    return [], " or ".join([messages[0], *(each.removeprefix("must be ") for each in messages[1:])]), value


def _is_union(hint: Any) -> bool:
    """Whether a hint offers several types, None not counted: pydantic then says which type each error is about."""
    if get_origin(hint) is Annotated:
        return _is_union(get_args(hint)[0])
    types = [each for each in get_args(hint) if each is not NoneType]
    return get_origin(hint) in (Union, UnionType) and (len(types) > 1 or _is_union(types[0]))


def _validator(hint: Any) -> pydantic.TypeAdapter[Any]:
    """A validator for `hint`, made once: that takes ten times as long as to validate a value."""
    try:
        return _known_validator(hint, repr(hint))  # `int | float` equals `float | int`, and reads another number first
    except TypeError:  # it cannot be hashed
        return _adapter(hint)


@lru_cache(maxsize=256)
def _known_validator(hint: Any, _text: str) -> pydantic.TypeAdapter[Any]:
    return _adapter(hint)


def _adapter(hint: Any) -> pydantic.TypeAdapter[Any]:
    """A new validator for `hint`; classes that pydantic does not know are checked with isinstance."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False))
    except PydanticUserError:  # pydantic's own models and dataclasses bring their configuration with them
        return TypeAdapter(hint)
