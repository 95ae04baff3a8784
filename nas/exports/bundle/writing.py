"""Writes the definitions that a model reaches into one text, under names that do not collide."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter

from nas.exports.bundle import reach
from nas.exports.bundle.edits import Edit, applied
from nas.exports.bundle.folding import about
from nas.exports.bundle.modules import Import, Key, Modules
from nas.exports.bundle.reach import Reached

SAID = {  # in place of what a module says of the search
    "searchspace.registry": "A block before it is built.",
    "searchspace.contract": "What a model passes to its blocks, and the state of one that reads in pieces.",
    "searchspace.parts": "Blocks inside blocks.",
    "kernels.rowwise.rows": "Help for operations on rows.",
}
ANY = Import("typing", "Any", "Any")
WIDTH = 116


def written(modules: Modules, found: Reached) -> tuple[str, dict[Key, str]]:
    """The imports and definitions as one text, and the name of each definition in it."""
    order = _ordered(modules, found)
    names = _names(modules, found, order)
    writer = _Writer(modules, found, names)
    sections = [writer.section(module) for module in order]
    body = "\n\n\n".join(each for each in sections if each)
    return f"{_imports(found, body)}\n{body}\n", names


def _ordered(modules: Modules, found: Reached) -> list[str]:
    """The modules of the definitions, each after those that it imports. The order is the same in every process."""
    used = {module for module, _ in found.definitions}
    graph: dict[str, set[str]] = {name: set() for name in sorted(used)}
    for module, name in sorted(found.definitions):
        for node in reach.kept_nodes(modules, found, (module, name)):
            for each in reach.names(node):
                key = reach.modules_key(modules, module, each)
                if isinstance(key, tuple) and key[0] != module:
                    graph[module].add(key[0])
    return list(TopologicalSorter({name: sorted(below) for name, below in graph.items()}).static_order())


def _names(modules: Modules, found: Reached, order: list[str]) -> dict[Key, str]:
    """A name for each definition: its own, or with the name of its module if another definition or a local has it."""
    local = {
        name
        for key in found.definitions
        for node in reach.kept_nodes(modules, found, key)
        for name in reach.all_locals(node)
    }
    taken = {each.used for each in found.imports} | set(keyword.kwlist)
    names: dict[Key, str] = {}
    for key in sorted(found.definitions, key=lambda key: (order.index(key[0]), key[1])):
        name = key[1]
        if name in taken or (name in local and _used_elsewhere(modules, found, key)):
            stem = key[0].rpartition(".")[2]
            under = "_" if name.startswith("_") else ""
            stem = stem.upper() if name.isupper() else stem
            name = f"{under}{stem}_{name.lstrip('_')}"
        while name in taken:
            name += "_"
        taken.add(name)
        names[key] = name
    return names


def _used_elsewhere(modules: Modules, found: Reached, key: Key) -> bool:
    """Whether another module uses it, whose functions may have a local of the same name."""
    if not isinstance(modules.get(key[0]).definitions[key[1]], ast.FunctionDef | ast.Assign | ast.AnnAssign):
        return False
    for module, name in found.definitions:
        if module == key[0]:
            continue
        for node in reach.kept_nodes(modules, found, (module, name)):
            hides = key[1] in reach.all_locals(node)
            if hides and any(reach.modules_key(modules, module, each) == key for each in reach.names(node)):
                return True
    return False


class _Writer:
    def __init__(self, modules: Modules, found: Reached, names: dict[Key, str]) -> None:
        self.modules, self.found, self.names = modules, found, names

    def section(self, name: str) -> str:
        """The definitions of a module in their order, below a comment that describes them."""
        module = self.modules.get(name)
        parts, done = [], set()
        for definition, node in module.definitions.items():
            if (name, definition) in self.found.definitions and id(node) not in done:
                done.add(id(node))
                parts.append((self._definition((name, definition), node).strip("\n"), node))
        text, last_small = "", False
        for part, node in parts:
            small = isinstance(node, ast.Assign | ast.AnnAssign)
            text += ("\n" if small and text and last_small else "\n\n\n" if text else "") + part
            last_small = small
        said = SAID.get(name, about(module.docstring))
        return f"{_comment(said)}\n\n{text}" if said else text

    def _definition(self, key: Key, node: ast.stmt) -> str:
        source = self.modules.get(key[0]).source
        edits: list[Edit] = []
        if isinstance(node, ast.ClassDef):
            edits += self._class(key, node)
        elif isinstance(node, ast.FunctionDef) and self.names[key] != node.name:
            start = source.text.index("def ", source.at(node.lineno, node.col_offset)) + 4
            edits.append((start, start + len(node.name), self.names[key]))
        for kept in reach.kept_nodes(self.modules, self.found, key):
            edits += self._renamed(key[0], kept)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            edits += self._renamed_targets(key[0], node)
        start, end = source.lines(node)
        inside = [(a - start, b - start, new) for a, b, new in edits if a >= start and b <= end]
        text = re.sub(r"\n{3,}", "\n\n", applied(source.text[start:end], inside))
        return re.sub(r"  # type: ignore.*", "", text)

    def _class(self, key: Key, node: ast.ClassDef) -> Iterator[Edit]:
        """The edits that remove what the model does not reach from a class."""
        source, chosen = self.modules.get(key[0]).source, self.found.methods.get(key, set())
        if self.names[key] != node.name:
            start = source.text.index("class ", source.at(node.lineno, node.col_offset)) + 6
            yield start, start + len(node.name), self.names[key]
        for each in node.decorator_list:
            if reach.is_left_out(each):
                start, end = source.at(each.lineno, 0), source.at((each.end_lineno or 0) + 1, 0)
                yield start, end, ""
        bases = [each for each in node.bases if reach.modules_key(self.modules, key[0], each) not in reach.EMPTY_BASES]
        if len(bases) < len(node.bases):
            start, end = source.span(node.bases[0])[0], source.span(node.bases[-1])[1]
            yield start, end, ", ".join(self._base(key[0], each) for each in bases)
        left = 0
        for inner in node.body:
            method = isinstance(inner, ast.FunctionDef)
            if (isinstance(inner, ast.FunctionDef) and inner.name not in chosen) or (
                not method and reach.is_search_only(inner)
            ):
                yield (*source.lines(inner), "")
                continue
            left += 1
            if isinstance(inner, ast.AnnAssign) and reach.is_given(inner.value):
                yield source.span(inner.annotation)[1], source.span(inner)[1], ""
        if not left:
            yield (*source.lines(node.body[0]), " " * node.body[0].col_offset + "pass\n")

    def _base(self, module: str, node: ast.expr) -> str:
        key = reach.modules_key(self.modules, module, node)
        return self.names[key] if isinstance(key, tuple) else self.modules.get(module).source.of(node)

    def _renamed(self, module: str, kept: ast.AST) -> Iterator[Edit]:
        source = self.modules.get(module).source
        for each in reach.names(kept):
            key = reach.modules_key(self.modules, module, each)
            if isinstance(key, tuple) and self.names.get(key, source.of(each)) != source.of(each):
                yield (*source.span(each), self.names[key])
        for each in reach.names(kept, annotations=True):
            key = reach.modules_key(self.modules, module, each)
            if isinstance(key, tuple):
                if key not in self.names:
                    self.found.imports.add(ANY)
                    yield (*source.span(each), "Any")
                elif source.of(each) != self.names[key]:
                    yield (*source.span(each), self.names[key])

    def _renamed_targets(self, module: str, node: ast.Assign | ast.AnnAssign) -> Iterator[Edit]:
        source = self.modules.get(module).source
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for each in ast.walk(target):
                if isinstance(each, ast.Name) and self.names.get((module, each.id), each.id) != each.id:
                    yield (*source.span(each), self.names[module, each.id])


def _comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.splitlines())


def _imports(found: Reached, body: str) -> str:
    """The imports that the text uses: the standard library, then torch."""
    used = [each for each in found.imports | {ANY} if re.search(rf"\b{re.escape(each.used)}\b", body)]
    standard = sorted({each for each in used if not each.module.startswith("torch")}, key=_order)
    torch = sorted({each for each in used if each.module.startswith("torch")}, key=_order)
    return "\n\n".join("\n".join(_lines(group)) for group in (standard, torch) if group) + "\n"


def _order(each: Import) -> tuple[bool, str, str]:
    return each.name is not None, each.module, each.used


def _lines(group: list[Import]) -> Iterator[str]:
    """One line for each module; names of one module stand together."""
    plain = [each for each in group if each.name is None]
    yield from (each.line for each in plain)
    modules = sorted({each.module for each in group if each.name is not None})
    for module in modules:
        inside = [each.line.partition(" import ")[2] for each in group if each.module == module and each.name]
        renamed = [each for each in inside if " as " in each]
        if plainly := [each for each in inside if " as " not in each]:
            yield f"from {module} import {', '.join(sorted(plainly, key=_case))}"
        yield from (f"from {module} import {each}" for each in sorted(renamed))


def _case(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, as import sorters want them."""
    word = name.partition(" ")[0]
    return (0 if word.isupper() and len(word) > 1 else 1 if word[:1].isupper() else 2), word
