"""The registry of blocks. Every module below `primitives`, `combinators` and `backbones` registers its own block."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from torch import nn

from searchspace.contract import GIVEN, OWN_POSITION, Given
from searchspace.cost import Cost, Shape
from searchspace.errors import SpaceError, nearest
from searchspace.published import Published
from searchspace.registration import problem
from searchspace.sharing import one_model
from searchspace.tree import Block

Role = Literal["block", "norm", "position", "model"]


@dataclass(frozen=True)
class Configured:
    """A block type with a complete configuration: it can be built, and its cost can be computed."""

    type: BlockType
    config: Any

    @cached_property
    def is_ours(self) -> bool:
        """Whether it and all blocks in it are of this library. What these cost depends on nothing but their
        configurations, which tell equal blocks apart; a block of the user's own may read a global, or a list.
        """
        values = (getattr(self.config, field.name) for field in dataclasses.fields(self.config))
        return self.type.family != "own" and all(map(_is_ours, values))

    @cached_property
    def _hash(self) -> int:
        return hash((self.type, self.config))

    def __hash__(self) -> int:  # costs are kept by block, so it is asked for hundreds of times in a trial
        return self._hash

    def __reduce__(self):  # without cached values: the hash of a text differs between processes
        return Configured, (self.type, self.config)

    def build(self) -> nn.Module:
        """The module, with new weights."""
        if self.type.role == "model":
            with one_model():
                return self.type.module(self.config)
        module = self.type.module(self.config)
        if isinstance(own := getattr(self.config, "position", None), Configured):
            module.add_module(OWN_POSITION, own.build())
        return module

    def cost(self, shape: Shape) -> Cost:
        """The cost of one call for an input of `shape`."""
        return self.type.module.cost(self.config, shape)

    def after(self, shape: Shape) -> Shape:
        """The shape of the output for an input of `shape`."""
        return self.type.module.after(self.config, shape) if self.type.role == "block" else shape


def _is_ours(value: Any) -> bool:
    return all(map(_is_ours, value)) if isinstance(value, tuple) else getattr(value, "is_ours", True)


def named(name: str) -> Any:
    """A default for a field that contains a block: the block called `name` with its own defaults."""
    return dataclasses.field(default=name)


# The types of configuration fields that contain blocks.
Blocks = Annotated[tuple[Configured, ...], "block"]  # written as one block or a list of blocks
Branches = Annotated[
    tuple[tuple[Configured, ...], ...], "block"
]  # a list of branches, each one block or a list of blocks
Norm = Annotated[Configured, "norm"]
Position = Annotated[Configured, "position"]


@dataclass(frozen=True, eq=False)
class Field:
    """One field of a configuration: its annotated type and its default (`MISSING` if it is required).

    If the field contains blocks, the default is the name of a block (see `named`). There is one object for each field
    of a block, so fields are compared and hashed by identity.
    """

    name: str
    type: Any
    default: Any

    @cached_property
    def role(self) -> Role | None:
        """The role of the blocks in this field; None for a scalar, and for a block that may be left out."""
        return self.holds if get_origin(self.type) is Annotated else None

    @cached_property
    def holds(self) -> Role | None:
        """The role of the blocks in this field, or of the one that it may have; None for a scalar."""
        members = get_args(self.type) if get_origin(self.type) is not Annotated else (self.type,)
        return next((get_args(each)[1] for each in members if get_origin(each) is Annotated), None)

    @property
    def many(self) -> bool:
        """Whether the field contains a list of blocks."""
        return self.type in (Blocks, Branches)


@dataclass(frozen=True)
class BlockType:
    """A registered block: its name, its configuration class, its module class and where it may stand.

    published: how it relates to its paper and to the released code; None if nothing was compared.
    """

    name: str
    config: type
    module: Any
    role: Role
    published: Published | None = dataclasses.field(default=None, compare=False)

    @property
    def family(self) -> str:
        """The folder of its module: attention, convolution, feedforward, combinators, ...; `own` for a user's block."""
        module = self.module.__module__
        return module.split(".")[-2] if module.startswith("searchspace.") else "own"

    @property
    def fields(self) -> dict[str, Field]:
        """The fields that can be written in YAML, in order."""
        return _fields(self.config)

    @cached_property
    def holds_no_blocks(self) -> bool:
        """Whether none of its fields is a block, a norm or a position."""
        return all(field.role is None for field in self.fields.values())

    @property
    def given(self) -> frozenset[str]:
        """The fields that the surrounding model fills in."""
        return _given(self.config)


@cache
def _fields(config: type) -> dict[str, Field]:
    hints = get_type_hints(config, include_extras=True)
    written = [f for f in dataclasses.fields(config) if not f.metadata.get(GIVEN)]
    found = [Field(f.name, hints[f.name], f.default) for f in written]
    return {f.name: f for f in sorted(found, key=lambda f: f.holds is not None and f.role is None)}  # these come last


@cache
def _given(config: type) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(config) if f.metadata.get(GIVEN))


OF_YOUR_OWN = (
    "For one of your own, name its file: `blocks: [FILE]` in a search file, or `nas --blocks FILE ...`; in Python, "
    "import it."
)
LOOKS_AHEAD = "{} looks ahead, so it cannot be part of a decoder. It can be part of an encoder."
_types: dict[tuple[Role, str], BlockType] = {}


def primitive(
    name: str,
    config: type,
    *,
    role: Role = "block",
    published: Published | None = None,
) -> Callable[[type], type]:
    """Register a module class under `name`; `config` is its frozen dataclass and the one home of names and defaults.

    A name belongs to one class in its role: `none` is a norm and a position.
    `published` says how the block differs from its paper and from the released code; docs/published.md shows it.
    Raises ValueError if the name is already taken, or if the name, the configuration or the class cannot be that of a
    block.
    """

    def register(module: type) -> type:
        known = _types.get((role, name))
        if known and not _is_reloaded(known.module, module):
            raise ValueError(f"Two of role {role!r} are called {name!r}: {known.module} and {module}.")
        if wrong := problem(name, config, module, role, get_args(Role)):
            raise ValueError(f"{name!r} cannot be registered: {wrong}.")
        _types[role, name] = BlockType(name, config, module, role, published)
        _sorted.cache_clear()
        return module

    return register


def _is_reloaded(known: type, module: type) -> bool:
    """Whether `module` is the class `known` of a module that was imported again."""
    return (known.__module__, known.__qualname__) == (module.__module__, module.__qualname__)


def forget(module: str) -> None:
    """Take back what the module of this name has registered."""
    for role, name in [key for key, kind in _types.items() if kind.module.__module__ == module]:
        del _types[role, name]
    _sorted.cache_clear()


@cache
def _discover() -> None:
    for package in ("searchspace.primitives", "searchspace.combinators", "searchspace.backbones"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, package + "."):
            importlib.import_module(module.name)


def block_types(role: Role | None = None) -> dict[str, BlockType]:
    """All registered blocks by name, sorted; with `role` only those. Roles may share a name; see `block_type`."""
    return dict(_known(role))


def all_blocks() -> list[BlockType]:
    """All registered blocks of all roles, which may share names."""
    _discover()
    return [*_types.values()]


def _known(role: Role | None) -> dict[str, BlockType]:
    _discover()
    return _sorted(role)


@cache
def _sorted(role: Role | None) -> dict[str, BlockType]:  # called for every block of every sample
    return {name: kind for (_, name), kind in sorted(_types.items()) if role is None or kind.role == role}


def block_type(name: str, role: Role | None = None) -> BlockType:
    """The block called `name`. Raises SpaceError with the nearest name if there is none.

    `role` distinguishes blocks that share a name, such as the norm and the position `none`. They have the same
    options, so without a role any of them is returned.
    """
    known = _known(role)
    if name not in known:
        raise SpaceError(f"No {role or 'block'} is called {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
    return known[name]


def configure(
    block: Block, given: Given | None = None, role: Role | None = None, made: dict[Any, Configured] | None = None
) -> Configured:
    """Turns a tree without holes into configurations.

    given: the values that the surrounding model hands down; a model's classmethod `given` determines them for each of
    its fields. role: the role of the block in its place. made: configurations of blocks that hold no blocks, by block
    and surroundings, which are made once and then shared: for checks of trees that repeat a block many times.

    Raises ValueError if values do not fit together; the message is that of the configuration.
    """
    kind = block_type(block.name, role)
    key = None
    if made is not None and not any(isinstance(value, Block | tuple) for value in block.fields.values()):
        key = (block.name, role, tuple(block.fields.items()), given)
        if key in made:
            return made[key]
    known = block.__dict__.setdefault("_configured", {})
    if (id(kind), given) in known:
        return known[id(kind), given]
    if kind.role == "block" and given and given.causal and not kind.module.able(block.fields).causal:
        raise ValueError(LOOKS_AHEAD.format(block.name))
    below = kind.module.given(block.fields) if kind.role == "model" else {}
    values: dict[str, Any] = {name: getattr(given, name) for name in kind.given}
    for name, value in block.fields.items():
        field = kind.fields.get(name)
        values[name] = _configured(value, below.get(name, given), field.holds if field else None, made)
    done = Configured(kind, kind.config(**values))
    if made is not None and key is not None:
        made[key] = done
    if done.is_ours:
        known[id(kind), given] = done
    return done


def _configured(value: Any, given: Given | None, role: Role | None, made: dict[Any, Configured] | None) -> Any:
    if isinstance(value, Block):
        return configure(value, given, role, made)
    if isinstance(value, tuple):
        return tuple(_configured(item, given, role, made) for item in value)
    return value
