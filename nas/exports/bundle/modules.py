"""The modules of the blocks and operations as text: their definitions, and the origin of each name."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache

from nas.exports.bundle.edits import Text, applied
from nas.exports.bundle.folding import folded

OURS = ("searchspace", "kernels")
CHANGED = 64  # modules with other code that are known
Key = tuple[str, str]  # module, name


@dataclass(frozen=True)
class Import:
    """An import of another package: `import module`, or `from module import name`, possibly `as` the used name."""

    module: str
    name: str | None
    used: str

    @property
    def line(self) -> str:
        """The statement."""
        if self.name is None:
            return (
                f"import {self.module}"
                if self.used == self.module.partition(".")[0]
                else f"import {self.module} as {self.used}"
            )
        return f"from {self.module} import {self.name}" + ("" if self.used == self.name else f" as {self.used}")


@dataclass
class Module:
    """A module after folding. definitions: top-level names. aliases: imported names."""

    name: str
    source: Text
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    aliases: dict[str, Import] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.source.tree.body:
            self._add(node)
            if isinstance(node, ast.If):  # for type checkers
                for inner in node.body:
                    self._add(inner)

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            self.definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        self.definitions[each.id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self.definitions[node.target.id] = node
        elif isinstance(node, ast.Import):
            for name in node.names:
                self.aliases[name.asname or name.name.partition(".")[0]] = Import(
                    name.name, None, name.asname or name.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for name in node.names:
                self.aliases[name.asname or name.name] = Import(node.module or "", name.name, name.asname or name.name)

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.source.tree) or ""


class Modules:
    """Modules by name, read once. own: further packages or modules whose code is taken, such as a user's own blocks.

    replaced: text in place of a definition.
    """

    def __init__(self, own: tuple[str, ...] = (), replaced: Mapping[Key, str] | None = None) -> None:
        self.own = own
        self.replaced = dict(replaced or {})
        self._known: dict[str, Module] = {}

    def get(self, name: str) -> Module:
        """The module called `name`, folded."""
        if name not in self._known:
            changed = frozenset((key, new) for (module, key), new in self.replaced.items() if module == name)
            self._known[name] = _changed(name, changed) if changed else _whole(name)
        return self._known[name]

    def is_ours(self, name: str) -> bool:
        return name.partition(".")[0] in OURS or name in self.own

    def resolve(self, module: str, name: str) -> Key | Import | str | None:
        """What `name` means in `module`: a definition, an import from outside, the name of one of our modules, or None
        for a builtin.
        """
        found = self.get(module)
        if name in found.definitions:
            return module, name
        alias = found.aliases.get(name)
        if alias is None:
            return None
        if not self.is_ours(alias.module):
            return alias
        if alias.name is None:
            return alias.module
        if _is_module(f"{alias.module}.{alias.name}"):
            return f"{alias.module}.{alias.name}"
        return self.resolve(alias.module, alias.name)


@cache
def _whole(name: str) -> Module:
    return Module(name, Text(_folded_text(name)))


@lru_cache(CHANGED)
def _changed(name: str, changed: frozenset[tuple[str, str]]) -> Module:
    """The module with other code for some of its definitions: (name, code)."""
    return Module(name, Text(_with(_folded_text(name), dict(changed))))


@cache
def _folded_text(name: str) -> str:
    return folded(inspect.getsource(importlib.import_module(name)))


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _with(text: str, changed: Mapping[str, str]) -> str:
    """`text` with other code for some of its definitions."""
    source = Text(text)
    edits = [
        (*source.lines(node, comments=False), changed[node.name].rstrip() + "\n")
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in changed
    ]
    edits += [
        (*source.span(node), changed[node.targets[0].id])
        for node in source.tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in changed
    ]
    return applied(text, edits)
