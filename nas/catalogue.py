"""A catalogue: classes found by name in the modules of a package, and made from options that are checked first.

The options of a class are the keyword-only parameters of its constructor that the caller does not give; their type
hints say what is allowed. So a class is the one home of its options' names, types and defaults.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from nas.errors import UsageError
from searchspace.errors import nearest

Class = TypeVar("Class", bound=type)


class Catalogue:
    """What `package` offers; `kind` is what people call one of them, `given` the parameters that are no options."""

    def __init__(self, kind: str, package: str, given: Iterable[str] = ()) -> None:
        self.kind = kind
        self.package = package
        self.given = frozenset(given)
        self._classes: dict[str, type] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[Class], Class]:
        """A decorator that makes a class known as `name`."""

        def add(cls: Class) -> Class:
            known = self._classes.get(name)
            if known and known.__qualname__ != cls.__qualname__:
                raise ValueError(f"Two are called {name!r} as a {self.kind}: {known} and {cls}.")
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """All names, sorted."""
        if not self._complete:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                if not module.name.startswith("_"):  # those are parts of others, imported when they are needed
                    importlib.import_module(f"{self.package}.{module.name}")
            self._complete = True
        return sorted(self._classes)

    def find(self, name: str) -> type:
        """The class called `name`. Raises UsageError with the nearest name."""
        if name not in self.names():
            known = ", ".join(self.names())
            raise UsageError(f"No {self.kind} is called {name!r}.{nearest(name, self.names())} Known: {known}.")
        return self._classes[name]

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """The options that `name` accepts, in order."""
        parameters = inspect.signature(self.find(name)).parameters.values()
        return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in self.given}

    def make(self, name: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """An instance of `name`. The option '' is one written without a name, and stands for the first.

        Raises UsageError for a name, an option or a value that is not accepted.
        """
        checked = self._checked(name, options)
        try:
            return self._classes[name](**given, **checked)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{self.kind} {name!r}: {error}") from error

    def _checked(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        accepted = self.options(name)
        hints = get_type_hints(vars(self._classes[name])["__init__"], include_extras=True)
        extra = inspect.Parameter.VAR_KEYWORD in {
            p.kind for p in inspect.signature(self._classes[name]).parameters.values()
        }
        checked = {}
        for key, value in options.items():
            option = next(iter(accepted), "") if key == "" else key
            if option in accepted:
                checked[option] = self._value(name, option, hints[option], value)
            elif extra and option and option not in self.given:
                checked[option] = value
            elif not option:
                raise UsageError(f"{self.kind} {name!r} takes no options, but got {value!r}.")
            else:
                known = f"Its options: {', '.join(accepted)}." if accepted else "It takes no options."
                raise UsageError(f"{self.kind} {name!r} has no option {option!r}.{nearest(option, accepted)} {known}")
        missing = [key for key, p in accepted.items() if p.default is p.empty and key not in checked]
        if missing:
            raise UsageError(f"{self.kind} {name!r} needs the option {missing[0]!r}.")
        return checked

    def _value(self, name: str, option: str, hint: Any, value: Any) -> Any:
        try:
            return TypeAdapter(hint).validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join([option, *(str(part) for part in first["loc"])])
            raise UsageError(f"{self.kind} {name!r}, option {place!r}: {first['msg']}, but got {value!r}.") from error
