"""Which definitions a model reaches: from the classes of its blocks, through their methods, to plain operations.

A method is reached if reached code uses an attribute with its name. This may keep a few methods that are not needed,
but never omits one that is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from torch import nn

from nas.exports.bundle.modules import Import, Key, Modules

# what only a search uses: checks of options, costs, and what a model hands down
NOT_NEEDED = {"__post_init__", "cost", "parts", "given", "after", "able", "widening", "capabilities"}
NOT_DECORATED = {"primitive"}
DEFAULTS = ("named", "given")  # of fields that the model always fills in
EMPTY_BASES = {("searchspace.parts", "Composite")}
REMEMBERED = 2**14  # nodes of syntax trees whose names are known: each is asked for several times


@dataclass
class Reached:
    """What is reached. methods: by class. imports: of other packages."""

    definitions: set[Key] = field(default_factory=set)
    methods: dict[Key, set[str]] = field(default_factory=dict)
    imports: set[Import] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)


def reached(modules: Modules, roots: Iterable[Key], attributes: Iterable[str] = ()) -> Reached:
    """Everything that `roots` need at run time, and names that occur only in annotations if they need nothing else.

    attributes: further names of methods that are needed.
    """
    found = Reached(attributes=set(attributes))
    waiting = sorted(roots)
    while True:
        while waiting:
            key = waiting.pop()
            if key in found.definitions:
                continue
            found.definitions.add(key)
            waiting += _of_nodes(modules, found, key[0], list(shell(modules, key)))
        more = [
            (key, method)
            for key in found.definitions
            for method in _methods(modules, key)
            if method.name not in found.methods.setdefault(key, set()) and _is_called(method, found.attributes)
        ]
        if not more:
            break
        for key, method in more:
            found.methods[key].add(method.name)
            waiting += _of_nodes(modules, found, key[0], [method])
    _aliases_of_annotations(modules, found)
    return found


def _is_called(method: ast.FunctionDef, attributes: set[str]) -> bool:
    name, of_class = method.name, any(isinstance(d, ast.Name) and d.id == "classmethod" for d in method.decorator_list)
    if name == "__post_init__" or (of_class and name in NOT_NEEDED):
        return False
    return name in attributes or name.startswith("__") or hasattr(nn.Module, name)


def _methods(modules: Modules, key: Key) -> list[ast.FunctionDef]:
    node = modules.get(key[0]).definitions[key[1]]
    return [each for each in node.body if isinstance(each, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []


def shell(modules: Modules, key: Key) -> Iterator[ast.AST]:
    """The nodes of a definition that are always reached: all of a function; of a class, all except its methods."""
    node = modules.get(key[0]).definitions[key[1]]
    if not isinstance(node, ast.ClassDef):
        yield node
        return
    yield from (each for each in node.bases if modules_key(modules, key[0], each) not in EMPTY_BASES)
    yield from (each for each in node.decorator_list if not is_left_out(each))
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and is_given(each.value):
            yield _without_default(each)
        elif not isinstance(each, ast.FunctionDef) and not is_search_only(each):
            yield each


@lru_cache(REMEMBERED)
def _without_default(field: ast.AnnAssign) -> ast.AnnAssign:
    return ast.copy_location(ast.AnnAssign(field.target, field.annotation, None, field.simple), field)


def is_given(value: ast.expr | None) -> bool:
    """Whether it is the default of a field that the model always fills in."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in DEFAULTS


def is_left_out(decorator: ast.expr) -> bool:
    """Whether a decorator only registers a class."""
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and (decorator.func.id in NOT_DECORATED)
    )


def is_search_only(node: ast.stmt) -> bool:
    """Whether only a search uses a statement of a class body."""
    target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    return (
        isinstance(target, ast.Name)
        and target.id in NOT_NEEDED
        and not (isinstance(node, ast.AnnAssign) and node.value is None)
    )


def modules_key(modules: Modules, module: str, node: ast.expr) -> Key | Import | None:
    """The definition or import that a name or `module.name` means."""
    if isinstance(node, ast.Name):
        found = modules.resolve(module, node.id)
        return None if isinstance(found, str) else found
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        found = modules.resolve(module, node.value.id)
        if isinstance(found, str):
            inner = modules.resolve(found, node.attr)
            return None if isinstance(inner, str) else inner
    return None


def _of_nodes(modules: Modules, found: Reached, module: str, nodes: list[ast.AST]) -> list[Key]:
    keys: list[Key] = []
    for node in nodes:
        for each in names(node):
            key = modules_key(modules, module, each)
            if isinstance(key, tuple):
                keys.append(key)
            elif isinstance(key, Import):
                found.imports.add(key)
        found.attributes |= _attributes(node)
    return keys


@lru_cache(REMEMBERED)
def _attributes(node: ast.AST) -> frozenset[str]:
    """The names of the attributes in `node`, and its texts, which may be arguments of getattr."""
    below = list(ast.walk(node))
    texts = {each.value for each in below if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return frozenset(texts | {each.attr for each in below if isinstance(each, ast.Attribute)})


@lru_cache(REMEMBERED)
def names(node: ast.AST, *, annotations: bool = False) -> tuple[ast.expr, ...]:
    """The names and `module.name`s in `node` that are not local to a function: outside annotations, or only there."""
    return tuple(_names(node, frozenset(), annotations))


def _names(node: ast.AST, local: frozenset[str], annotations: bool) -> Iterator[ast.expr]:
    if isinstance(node, ast.Lambda | ast.FunctionDef):
        outer, local = local, local | locals_of(node)
        inside = node.body if isinstance(node.body, list) else [node.body]
        for each in inside:
            yield from _names(each, local, annotations)
        for each in [*getattr(node, "decorator_list", ()), *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            yield from _names(each, outer, annotations)
        if annotations and isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            arguments += [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
            for hint in [node.returns, *(each.annotation for each in arguments)]:
                if hint is not None:
                    yield from _names(hint, frozenset(), False)
        return
    if isinstance(node, ast.AnnAssign):
        if annotations:
            yield from _names(node.annotation, frozenset(), False)
        yield from _names(node.target, local, annotations)
        if node.value is not None:
            yield from _names(node.value, local, annotations)
        return
    if isinstance(node, ast.Name):
        if node.id not in local and not annotations:
            yield node
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id not in local and not annotations:
            yield node
            yield node.value
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child, local, annotations)


@lru_cache(REMEMBERED)
def locals_of(function: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """The parameters of a function and the names that it assigns, without those of functions inside it."""
    a = function.args
    found = {each.arg for each in [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]}
    waiting: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    left = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Global):
            left.update(node.names)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return frozenset(found - left)


@lru_cache(REMEMBERED)
def all_locals(node: ast.AST) -> frozenset[str]:
    """The locals of all functions in `node`."""
    functions = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.Lambda)]
    return frozenset().union(*map(locals_of, functions))


def kept_nodes(modules: Modules, found: Reached, key: Key) -> list[ast.AST]:
    """The nodes of a definition that are written."""
    chosen = found.methods.get(key, set())
    return [*shell(modules, key), *(each for each in _methods(modules, key) if each.name in chosen)]


def _aliases_of_annotations(modules: Modules, found: Reached) -> None:
    """Add the types that annotations use: imported ones, and our own aliases that consist only of these."""
    for key in list(found.definitions):
        for node in kept_nodes(modules, found, key):
            for each in names(node, annotations=True):
                _annotation(modules, found, key[0], each)


def _annotation(modules: Modules, found: Reached, module: str, node: ast.expr) -> None:
    key = modules_key(modules, module, node)
    if isinstance(key, Import):
        found.imports.add(key)
    if not isinstance(key, tuple) or key in found.definitions:
        return
    definition = modules.get(key[0]).definitions[key[1]]
    if not isinstance(definition, ast.Assign):
        return
    inside = [modules_key(modules, key[0], each) for each in names(definition.value)]
    if all(each is None or isinstance(each, Import) for each in inside):
        found.definitions.add(key)
        found.imports |= {each for each in inside if isinstance(each, Import)}
