"""A registry: things found by name in the modules of a package, built from options that are validated first.

A registered thing is a class or a function. Its options are the parameters that the caller does not give, and their
type hints say which values are valid. So the names, types and defaults of its options are written only there.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from types import NoneType, SimpleNamespace, TracebackType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nas.errors import NasError, UsageError
from searchspace.suggestions import nearest as nearest

if TYPE_CHECKING:
    import pydantic

Thing = TypeVar("Thing", bound=Callable[..., Any])

MOST_MISTAKES = 20  # that one message lists: a file may hold any number of them
LONGEST = 500  # characters of one of several mistakes
OWN = ("nas.", "searchspace.")  # modules of the product
UNNAMED = ""  # the key of an option written without its name: `optuna: TPESampler`


class Registry:
    """The things of one kind that the modules of `package` register.

    kind: what people call one of them, such as "strategy". given: parameters that the caller fills in, so they are not
    options. offered: such parameters that a thing may leave out. names_errors: whether `make` names the thing for any
    error; not for things that are made in a unit, whose failure has the kind of the error. Modules whose names begin
    with an underscore are parts of others and are not looked through.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        given: Iterable[str] = (),
        offered: Iterable[str] = (),
        *,
        names_errors: bool = False,
    ) -> None:
        self.kind = kind
        self.package = package
        self.names_errors = names_errors
        self.offered = frozenset(offered)
        self.given = frozenset(given) | self.offered
        self._things: dict[str, Callable[..., Any]] = {}
        self._former: dict[str, str] = {}  # earlier name -> name
        self._sought: set[str] = set()  # names whose modules were looked for

    def register(self, name: str, *, former: Iterable[str] = ()) -> Callable[[Thing], Thing]:
        """A decorator that registers a class or function as `name`; `former` are earlier names that stay valid.

        Raises ValueError if another thing has that name.
        """

        def add(thing: Thing) -> Thing:
            for each in (name, *former):
                known = self._things.get(self._former.get(each, each))
                if known and known.__qualname__ != thing.__qualname__:
                    raise ValueError(f"The {self.kind} {each!r} is defined twice: {known} and {thing}.")
            self._things[name] = thing
            self._former.update(dict.fromkeys(former, name))
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
        """All current names, sorted."""
        return sorted(self._all)

    def name(self, name: str) -> str:
        """The current name for `name`, which may be an earlier one. Raises UsageError with the nearest valid name."""
        known = self._all
        current = self._former.get(name, name)
        if current not in known:
            raise UsageError(
                f"No {self.kind} is called {name!r}.{nearest(name, known)} Known: {', '.join(sorted(known))}."
            )
        return current

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

    def by_name(self, name: str, written: Mapping[str, Any]) -> dict[str, Any]:
        """`written` with the name of the first option for one that was written without it, as `check` reads it.

        Raises UsageError for an unknown name.
        """
        first = next(iter(self.options(name)), UNNAMED)
        return {first if key == UNNAMED else key: value for key, value in written.items()}

    def earlier(self, name: str) -> dict[str, Any]:
        """The values of options before these options existed. Studies of that time do not name them."""
        return dict(getattr(self.find(name), "EARLIER", {}))

    def make(self, name: str, given: Mapping[str, Any], written: Mapping[str, Any]) -> Any:
        """Call the thing called `name` with what the caller gives and the options `written` by the user.

        Raises UsageError for an unknown name, an invalid option, and ValueError or TypeError of the thing itself; for
        each of its errors if the registry has `names_errors`.
        """
        thing = self.find(name)
        values = self.check(name, written)
        known = inspect.signature(thing).parameters
        given = {key: value for key, value in given.items() if key in known or key not in self.offered}
        try:
            return thing(**given, **values)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{self.kind} {name!r}: {error}") from error
        except (NasError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not self.names_errors:
                raise
            said = traceback_of(error)
            raise UsageError(f"The {self.kind} {name!r} raised an error when it was made:\n{said}") from error


def traceback_of(error: BaseException) -> str:
    """The traceback of `error` as text, without the file that caught it.

    If code of the user has raised it, the traceback begins there.
    """
    frames = list(_frames(error.__traceback__))
    below = [each for each in frames if each.tb_frame.f_code.co_filename != frames[0].tb_frame.f_code.co_filename]
    users = [each for each in below if not each.tb_frame.f_globals.get("__name__", "").startswith(OWN)]
    first = next(iter(users or below), None)
    return "".join(traceback.format_exception(type(error), error, first)).rstrip()


def _frames(first: TracebackType | None) -> Iterator[TracebackType]:
    while first is not None:
        yield first
        first = first.tb_next


def options(thing: Callable[..., Any], given: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """The parameters of `thing` that are options: all but those in `given`, `*args` and `**kwargs`."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(thing).parameters.values()
    return {each.name: each for each in parameters if each.kind not in variable and each.name not in set(given)}


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
    open_ended = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(thing).parameters.values())
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
