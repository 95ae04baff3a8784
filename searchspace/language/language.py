"""Reads the YAML language of architectures and spaces into a tree; docs/language.md describes the language.

The registry gives the names of blocks, and each block's configuration gives the names, types and defaults of its
fields. Every default is filled in, so two spellings of one model give equal trees. All problems of a text are reported
together, with line and path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from searchspace import registry
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language import constraints, definitions, documents, fitting, references, schema
from searchspace.language.constraints import QUANTITIES, Constraint
from searchspace.language.documents import Document, Path_, Tagged, describe, path_text
from searchspace.language.printing import render
from searchspace.language.schema import Accepts, Mismatch
from searchspace.registry import BlockType, Role
from searchspace.tree import Block, Choice, Floats, Integers, Same, Scalar, Value

__all__ = ["QUANTITIES", "TAGS", "Constraint", "Description", "from_data", "load", "parse", "render"]

TAGS = ("!choice", "!int", "!float", "!same")

_INVALID: Any = object()  # replaces what could not be read; no tree that contains it leaves this module
_CHOICE = {"options": Any, "name": str, "each": bool}
_INTEGERS = {"low": int, "high": int, "step": int, "log": bool, "name": str, "each": bool}
_FLOATS = {"low": float, "high": float, "step": float, "log": bool, "name": str, "each": bool}

Reader = Callable[[Any, Path_], Any]


@dataclass(frozen=True)
class Description:
    """The content of a file: a model, with or without holes, and its constraints."""

    root: Block
    constraints: tuple[Constraint, ...] = ()


Given = Mapping[str, Scalar]  # fields of the model that a file may leave out, because its user decides them
DECIDED = (
    " A search fills it in from its task, and `nas train` from --task. Other commands need it in the file, such as "
    "`{}: 256`."
)
ALTERNATIVES = {"vocabulary": "features", "features": "vocabulary"}  # a model reads symbols or vectors


def parse(text: str, source: str = "<text>", given: Given | None = None) -> Description:
    """Reads an architecture or a space. `source` is its name in errors.

    `given` fields of the model are filled in if the text leaves them out. Raises SpaceError with all problems.
    """
    return from_data(documents.parse(text, source, TAGS), given=given)


def load(path: str | Path, given: Given | None = None) -> Description:
    """Reads the file at `path`; see `parse`. Raises SpaceError with all problems."""
    return from_data(documents.load(path, TAGS), given=given)


def from_data(data: Document | Any, path: Path_ = (), given: Given | None = None) -> Description:
    """Reads the part at `path` of a document (the `space:` of a search file), or plain data with `Tagged` holes.

    Raises SpaceError with all problems.
    """
    document = data if isinstance(data, Document) else Document(data, "<data>")
    data = document.data
    for step in path:
        data = data[step]
    return _Reading(document, given or {}).description(data, path)


class _Reading:
    """Reads the data of one description once."""

    def __init__(self, document: Document, given: Given):
        self.document = document
        self.given = given
        self.problems: list[Problem] = []
        self.definitions = definitions.Definitions(self)
        self.paths: dict[int, tuple[object, str]] = {}  # by identity; the node is kept so that its id is not reused

    def problem(self, message: str, path: Path_) -> Any:
        """Records a problem and returns `_INVALID`. Raises SpaceError after `MAX_PROBLEMS`."""
        self.problems.append(Problem(message, self.document.mark(path), path_text(path)))
        if len(self.problems) == documents.MAX_PROBLEMS:
            raise SpaceError(self.problems)
        return _INVALID

    def placed(self, node: Any, path: Path_) -> Any:
        self.paths[id(node)] = (node, path_text(path))
        return node

    def path_of(self, node: object) -> str:
        return self.paths[id(node)][1] if id(node) in self.paths else ""

    def description(self, data: Any, path: Path_) -> Description:
        self.definitions.read(data, path)
        root = self.root(data, path)
        self.definitions.check_used()
        written = data.get("constraints") if isinstance(data, dict) else None
        bounds = constraints.read(self.document, written, (*path, "constraints"), self.problem)
        complete = not self.problems
        if root is not _INVALID:
            self.problems += references.check(root, self.path_of, complete=complete)
        if not self.problems:
            self.problems += fitting.problems(root, self.path_of)
        if self.problems:
            raise SpaceError(self.problems)
        return Description(root, bounds)

    def root(self, data: Any, path: Path_) -> Block:
        models = registry.block_types("model")
        if not isinstance(data, dict):
            return self.problem(f"Expected a model, `kind: NAME` with its fields, found {describe(data)}.", path)
        if "kind" not in data:
            return self.problem(f"A model needs `kind`: one of {', '.join(models)}.", path)
        kind = data["kind"]
        if not isinstance(kind, str) or kind not in models:
            near = nearest(kind, models) if isinstance(kind, str) else ""
            message = f"Expected a model, one of {', '.join(models)}, found {describe(kind)}.{near}"
            return self.problem(message, (*path, "kind"))
        written = {k: v for k, v in data.items() if k not in ("kind", "define", "constraints")}
        return self.fields(kind, self.completed(kind, written), path)

    def completed(self, kind: str, written: dict[str, Any]) -> dict[str, Any]:
        """The fields of a model as `written`, with those that are given and left out."""
        fields = registry.block_type(kind).fields
        missing = {name: value for name, value in self.given.items() if name in fields and name not in written}
        return {k: v for k, v in missing.items() if ALTERNATIVES.get(k) not in written} | written

    def block(self, data: Any, path: Path_, role: Role) -> Block:
        """A block, written as `name` or `name: fields`."""
        if isinstance(data, str):
            return self.named(data, None, path, role)
        if isinstance(data, dict) and len(data) == 1:
            [(name, body)] = data.items()
            return self.named(name, body, (*path, name), role)
        if isinstance(data, dict) and data:
            known = [name for name in data if name in registry.block_types(role)]
            hint = f" Should the lines after {known[0]!r} be indented further?" if known else ""
            message = f"Expected a {role}, `name` or `name: {{field: value}}`, found {describe(data)}.{hint}"
            return self.problem(message, path)
        return self.problem(f"Expected a {role}, found {describe(data)}.", path)

    def named(self, name: str, body: Any, path: Path_, role: Role) -> Block:
        known = registry.block_types(role)
        if name == definitions.USE and role == "block" and not isinstance(body, dict):
            return self.definitions.use(body, path)
        if name in known:
            return self.fields(name, self.body(known[name], body), path)
        if name in registry.block_types():
            other = registry.block_type(name).role
            return self.problem(f"Expected a {role}, but {name} is a {other}. Known: {', '.join(known)}.", path)
        near = nearest(name, known)
        own = "" if near else f" {registry.OF_YOUR_OWN}"
        return self.problem(f"No {role} is called {name!r}.{near} Known: {', '.join(known)}.{own}", path)

    def body(self, kind: BlockType, body: Any) -> Any:
        """The fields of a block; `sequence: [...]` and `learned: 512` set the only field, or the field `of`."""
        if body is None or isinstance(body, dict):
            return body or {}
        if len(kind.fields) == 1:
            return {next(iter(kind.fields)): _Short(body)}
        if "of" in kind.fields and not isinstance(body, (int, float)):
            return {"of": _Short(body)}
        return body

    def fields(self, name: str, data: Any, path: Path_) -> Block:
        kind = registry.block_type(name)
        if not isinstance(data, dict):
            names = ", ".join(kind.fields)
            return self.problem(f"Expected the fields of {name} ({names}), found {describe(data)}.", path)
        unknown = [key for key in data if key not in kind.fields]
        for key in unknown:
            self.unknown_field(kind, key, (*path, key))
        values = {}
        for key, known in kind.fields.items():
            if key not in data:
                values[key] = schema.default(known)
                if values[key] is MISSING and not unknown:  # otherwise the unknown field was probably meant
                    hint = DECIDED.format(key) if key in ALTERNATIVES else ""
                    self.problem(f"{name} needs {key!r} ({schema.accepted(known).expected}).{hint}", path)
                continue
            written = data[key]
            accepted = schema.accepted(known)
            if isinstance(written, _Short):
                values[key] = self.value(accepted, written.value, path)
            else:
                values[key] = self.value(accepted, written, (*path, key))
        return self.placed(Block(name, values, self.document.mark(path)), path)

    def unknown_field(self, kind: BlockType, key: str, path: Path_) -> None:
        if key in kind.given:
            self.problem(f"{key!r} of {kind.name} is set by the surrounding model; remove it.", path)
        elif not kind.fields:
            self.problem(f"{kind.name} has no fields, found {key!r}.", path)
        else:
            known = f"Known: {', '.join(kind.fields)}."
            self.problem(f"{kind.name} has no field {key!r}.{nearest(key, kind.fields)} {known}", path)

    def value(self, accepted: Accepts, data: Any, path: Path_) -> Value:
        if data is None and accepted.optional:
            return None
        if accepted.shape == "blocks":
            return self.blocks(accepted, data, path)
        if accepted.shape == "branches":
            return self.branches(accepted, data, path)
        if isinstance(data, Tagged):
            return self.hole(accepted, data, path, lambda option, at: self.value(accepted, option, at))
        return self.block(data, path, accepted.role) if accepted.role else self.scalar(accepted, data, path)

    def scalar(self, accepted: Accepts, data: Any, path: Path_) -> Any:
        if isinstance(data, Tagged):
            return self.problem(f"A hole is not allowed here; expected {accepted.expected}, found {data.tag}.", path)
        try:
            return accepted.read(data)
        except Mismatch as error:
            return self.problem(str(error), path)

    def branches(self, accepted: Accepts, data: Any, path: Path_) -> tuple[Value, ...]:
        if isinstance(data, Tagged):
            message = f"Expected a list of branches, found {data.tag}. Put the hole into a branch of the list."
            return self.problem(message, path)
        if not isinstance(data, list):
            return (self.blocks(accepted, data, path),)
        return tuple(self.blocks(accepted, branch, (*path, i)) for i, branch in enumerate(data))

    def blocks(self, accepted: Accepts, data: Any, path: Path_) -> tuple[Value, ...]:
        if isinstance(data, list):
            return tuple(self.item(accepted, item, (*path, i)) for i, item in enumerate(data))
        return (self.item(accepted, data, path),)

    def item(self, accepted: Accepts, data: Any, path: Path_) -> Value:
        """One item of a list of blocks: a block, or a hole for blocks."""
        assert accepted.role is not None
        if isinstance(data, Tagged):
            return self.hole(accepted, data, path, lambda option, at: self.option(accepted, option, at))
        if isinstance(data, list):
            return self.problem("Expected a block, found a list within a list. To nest, write `sequence: [...]`.", path)
        return self.block(data, path, accepted.role)

    def option(self, accepted: Accepts, data: Any, path: Path_) -> Value:
        """An option for blocks: a block, or a tuple if it is several blocks, no block, or a hole."""
        blocks = self.blocks(accepted, data, path)
        return blocks[0] if len(blocks) == 1 and isinstance(blocks[0], Block) else blocks

    def hole(self, accepted: Accepts, data: Tagged, path: Path_, read_option: Reader) -> Value:
        match data.tag:
            case "!choice":
                return self.choice(data.value, path, read_option)
            case "!int":
                if int in accepted.scalars:
                    return self.integers(data.value, path)
                instead = " Write !float." if float in accepted.scalars else ""
                return self.problem(f"Expected {accepted.expected}, found !int.{instead}", path)
            case "!float":
                if float in accepted.scalars:
                    return self.floats(data.value, path)
                instead = " Write !int." if int in accepted.scalars else ""
                return self.problem(f"Expected {accepted.expected}, found !float.{instead}", path)
            case "!same" if isinstance(data.value, str):
                return self.placed(Same(data.value, self.document.mark(path)), path)
        return self.problem(f"Expected !same NAME, the name of another hole, found {describe(data.value)}.", path)

    def choice(self, data: Any, path: Path_, read_option: Reader) -> Value:
        short = isinstance(data, list)
        given: Any = {"options": data} if short else self.attributes("!choice", data, _CHOICE, ("options",), path)
        if given is _INVALID:
            return _INVALID
        options, place = given["options"], path if short else (*path, "options")
        if not isinstance(options, list) or not options:
            return self.problem(f"Expected a list of options, found {describe(options)}.", place)
        read = tuple(read_option(option, (*place, i)) for i, option in enumerate(options))
        mark = self.document.mark(path)
        return self.placed(Choice(read, given.get("name"), given.get("each", False), mark), path)

    def integers(self, data: Any, path: Path_) -> Value:
        given = self.ends("!int", data, _INTEGERS, path)
        if given is _INVALID:
            return _INVALID
        step, span = given.get("step", 1), given["high"] - given["low"]
        if step > 0 and span % step:
            last = given["high"] - span % step
            message = f"high must be low plus a whole number of steps: {last} or {last + step}, not {given['high']}."
            return self.problem(message, path)
        return self.placed(Integers(**given, mark=self.document.mark(path)), path)

    def floats(self, data: Any, path: Path_) -> Value:
        given = self.ends("!float", data, _FLOATS, path)
        if given is _INVALID:
            return _INVALID
        if "step" in given:
            steps = (given["high"] - given["low"]) / given["step"]
            if abs(steps - round(steps)) > 1e-6:
                message = f"high must be low plus a whole number of steps, but it is {steps:.6g} steps above low."
                return self.problem(message, path)
        return self.placed(Floats(**given, mark=self.document.mark(path)), path)

    def ends(self, tag: str, data: Any, known: Mapping[str, Any], path: Path_) -> Any:
        """The attributes of !int and !float, checked together."""
        if isinstance(data, list):
            if len(data) != 2:
                return self.problem(f"Expected {tag} [low, high], found a list of {len(data)}.", path)
            accepted = schema.accepts(known["low"])
            low, high = (self.scalar(accepted, end, (*path, i)) for i, end in enumerate(data))
            given = {"low": low, "high": high}
        else:
            given = self.attributes(tag, data, known, ("low", "high"), path)
        if given is _INVALID or _INVALID in given.values():
            return _INVALID
        low, high = given["low"], given["high"]
        if low > high:
            return self.problem(f"low must not exceed high, but got low={low}, high={high}.", path)
        if given.get("step", 1) <= 0:
            return self.problem(f"step must be above 0, but got {given['step']}.", path)
        if given.get("log") and low <= 0:
            return self.problem(f"log needs low above 0, but got low={low}.", path)
        if given.get("log") and given.get("step", 1 if tag == "!int" else None) not in (None, 1):
            return self.problem("log and step cannot be used together; remove one.", path)
        return given

    def attributes(self, tag: str, data: Any, known: Mapping[str, Any], needed: tuple[str, ...], path: Path_) -> Any:
        """The attributes of a hole in its long form; unknown ones are reported and left out."""
        if not isinstance(data, dict):
            short = "[low, high]" if "low" in known else "[option, option]"
            return self.problem(f"Expected {tag} {short} or a mapping, found {describe(data)}.", path)
        given = {}
        for key, value in data.items():
            if key not in known:
                message = f"{tag} has no {key!r}.{nearest(key, known)} Known: {', '.join(known)}."
                self.problem(message, (*path, key))
            elif known[key] is Any:
                given[key] = value
            else:
                given[key] = self.scalar(schema.accepts(known[key]), value, (*path, key))
        missing = [key for key in needed if key not in data]
        if missing and given.keys() == data.keys():  # otherwise an unknown attribute was probably meant
            self.problem(f"{tag} needs {' and '.join(missing)}.", path)
        return _INVALID if missing else given


@dataclass(frozen=True)
class _Short:
    """A value that is written in place of the fields of a block."""

    value: Any
