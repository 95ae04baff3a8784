"""The valid values and the default of a field of a block, from the types of its configuration."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from searchspace import registry
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language.documents import describe
from searchspace.registry import BlockType, Field, Role
from searchspace.tree import Block, Choice, Floats, Integers, Same, Value, kept

Shape = Literal["one", "blocks", "branches"]

_NAMES: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class Mismatch(ValueError):
    """Raised for a value of the wrong type. The message says what was expected and what was found."""


@dataclass(frozen=True)
class Accepts:
    """What a field accepts: blocks of one role in one shape, or scalars.

    role, shape: of the blocks; None for scalars. scalars: types among bool, int, float, str. literals: exact values.
    optional: whether null is valid.
    """

    role: Role | None
    shape: Shape | None
    scalars: tuple[type, ...]
    literals: tuple[Any, ...]
    optional: bool

    @property
    def expected(self) -> str:
        """A description, such as `a whole number or null`."""
        words = [{"blocks": "blocks", "branches": "a list of branches"}.get(str(self.shape), f"a {self.role}")]
        words = words if self.role else [_NAMES[scalar] for scalar in self.scalars]
        if self.literals:
            shown = [str(value).lower() if isinstance(value, bool) else repr(value) for value in self.literals]
            words.append(f"one of {', '.join(shown)}" if len(shown) > 1 else shown[0])
        return " or ".join([*words, "null"] if self.optional else words)

    def read(self, data: Any) -> Any:
        """`data` as a value of this type; an int becomes a float if a float is expected. Raises Mismatch."""
        if data is None and self.optional:
            return None
        for literal in self.literals:
            if type(literal) is type(data) and literal == data:
                return literal
        if type(data) in self.scalars and type(data) is not float:
            return data
        if float in self.scalars and type(data) in (int, float):
            if not math.isfinite(data) or abs(data) > 1e300:
                raise Mismatch(f"Expected a finite number, found {describe(data)}.")
            return float(data) + 0.0  # -0.0 becomes 0.0
        raise Mismatch(f"Expected {self.expected}, found {describe(data)}.{self._hint(data)}")

    def _hint(self, data: Any) -> str:
        if bool in self.scalars and isinstance(data, str) and data.lower() in ("no", "off", "n", "yes", "on", "y"):
            return f" Write {'false' if data.lower() in ('no', 'off', 'n') else 'true'}."
        if int in self.scalars and isinstance(data, float) and data.is_integer() and abs(data) < 1e15:
            return f" Write {int(data)}."
        if str in self.scalars and isinstance(data, (bool, int, float)):
            return " Put it in quotes."
        return nearest(data, [value for value in self.literals if isinstance(value, str)]) if data else ""

    def holds(self, value: Value) -> bool:
        """Whether a value of a tree, which may have holes, is valid here."""
        if value is None:
            return self.optional
        match value:
            case Choice():
                return all(self._holds_option(option) for option in value.options)
            case Integers():
                return int in self.scalars
            case Floats():
                return float in self.scalars
            case Same():
                return True
            case Block():
                return self.shape == "one" and has_role(value.name, self.role)
            case tuple():
                return self._holds_all(value)
        try:
            return self.role is None and type(self.read(value)) is type(value)
        except Mismatch:
            return False

    def _holds_option(self, option: Value) -> bool:
        # In a list of blocks an option is one block or several.
        if self.shape in ("blocks", "branches"):
            items = option if isinstance(option, tuple) else (option,)
            return all(self._holds_item(item) for item in items)
        return self.holds(option)

    def _holds_item(self, item: Value) -> bool:
        if isinstance(item, Choice):
            return all(self._holds_option(option) for option in item.options)
        return isinstance(item, Same) or (isinstance(item, Block) and has_role(item.name, self.role))

    def _holds_all(self, value: tuple[Value, ...]) -> bool:
        if self.shape == "branches":
            return all(isinstance(branch, tuple) and all(map(self._holds_item, branch)) for branch in value)
        return self.shape == "blocks" and all(map(self._holds_item, value))


@cache
def accepts(type_: Any) -> Accepts:
    """What a field of the type `type_` accepts. Raises TypeError if fields cannot have this type."""
    members = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    role: Role | None = None
    shape: Shape | None = None
    scalars: list[type] = []
    literals: list[Any] = []
    for member in members:
        if get_origin(member) is Annotated:
            role = get_args(member)[1]
            shape = "blocks" if member == registry.Blocks else "branches" if member == registry.Branches else "one"
        elif get_origin(member) is Literal:
            literals += get_args(member)
        elif member in _NAMES:
            scalars.append(member)
        elif member is not NoneType:
            raise TypeError(f"A configuration may not have a field of type {type_}.")
    return Accepts(role, shape, tuple(scalars), tuple(literals), NoneType in members)


def has_role(name: str, role: Role | None) -> bool:
    """Whether there is a block of `role` with the current name `name`."""
    return name in registry.block_types(role)


@cache
def accepted(field: Field) -> Accepts:
    """What `field` accepts. Raises TypeError if fields cannot have its type."""
    return accepts(field.type)


@cache
def default(field: Field) -> Any:
    """The default of `field` as a tree; `MISSING` if the field is required."""
    known = accepted(field)
    if field.default is MISSING or (field.default is None and known.optional):
        return field.default
    if known.role is None:
        return known.read(field.default)
    block = Block(field.default, _completed(registry.block_type(field.default, known.role), {}))
    return {"one": block, "blocks": (block,), "branches": ((block,),)}[str(known.shape)]


def same(first: Any, second: Any) -> bool:
    """Equality of trees that distinguishes 1, 1.0 and true."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, Block):
        names = first.name == second.name and first.fields.keys() == second.fields.keys()
        return names and all(same(value, second.fields[name]) for name, value in first.fields.items())
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@kept
def written(block: Block) -> dict[str, Value]:
    """The fields of `block` that are not at their default."""
    known = registry.block_type(block.name).fields
    return {name: value for name, value in block.fields.items() if not same(value, default(known[name]))}


def complete(block: Block, path: str = "") -> Block:
    """Checks a tree that a program made, and completes it: defaults are filled in, ints become floats where needed.

    Raises SpaceError with all problems.
    """
    problems: list[Problem] = []
    done = _complete(block, path, problems)
    if problems:
        raise SpaceError(problems)
    return done


def _complete(block: Block, path: str, problems: list[Problem]) -> Block:
    if block.name not in registry.block_types():
        message = f"No block is called {block.name!r}.{nearest(block.name, registry.block_types())}"
        problems.append(Problem(message, block.mark, path))
        return block
    kind = registry.block_type(block.name)
    values = {}
    for name, value in block.fields.items():
        if name not in kind.fields:
            message = f"{kind.name} has no field {name!r}.{nearest(name, kind.fields)}"
            problems.append(Problem(message, block.mark, path))
        else:
            values[name] = _complete_value(kind.fields[name], value, f"{path}.{name}".lstrip("."), block, problems)
    fields = _completed(kind, values)
    for name, value in fields.items():
        if value is MISSING:
            problems.append(Problem(f"{kind.name} needs {name!r}, which has no default.", block.mark, path))
    return Block(kind.name, fields, block.mark)


def _complete_value(field: Field, value: Any, path: str, holder: Block, problems: list[Problem]) -> Any:
    known = accepted(field)
    value = _complete_below(value, path, problems)
    if known.role is None and (value is None or isinstance(value, (bool, int, float, str))):
        try:
            return known.read(value)
        except Mismatch as error:
            problems.append(Problem(str(error), holder.mark, path))
            return value
    if not known.holds(value):
        problems.append(Problem(f"Expected {known.expected}, found {_found(value)}.", holder.mark, path))
    return value


def _complete_below(value: Any, path: str, problems: list[Problem]) -> Any:
    if isinstance(value, Block):
        return _complete(value, f"{path}.{value.name}", problems)
    if isinstance(value, tuple):
        return tuple(_complete_below(item, f"{path}[{index}]", problems) for index, item in enumerate(value))
    if isinstance(value, Choice):
        options = tuple(_complete_below(option, f"{path}[{i}]", problems) for i, option in enumerate(value.options))
        return Choice(options, value.name, value.each, value.mark)
    return value


def _completed(kind: BlockType, values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] if name in values else default(field) for name, field in kind.fields.items()}


def _found(value: Any) -> str:
    return f"the block {value.name!r}" if isinstance(value, Block) else describe(value)
