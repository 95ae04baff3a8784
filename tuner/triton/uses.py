"""How a Triton kernel uses the memory of its arguments, as its source code says: only written, or only read.

What the memory of an argument that is only written holds before a run cannot matter, so a check may put anything there;
one that is only read cannot be an output. An argument counts only if every use of it is the address of such an access,
alone, with offsets added, or under another name, or asks for its dtype, or hands it to a function that does so.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from tuner.triton.source import function_of, tree_of

OF_ITS_TYPE = ("dtype", "type")  # attributes of an address that say nothing of what its memory holds


def only(kernel: Any, access: str) -> set[str]:
    """The names of the arguments whose memory is only accessed by `access`, store or load; empty if the source code
    cannot be read."""
    return _only(kernel, access, ())


def _only(kernel: Any, access: str, outer: tuple[Any, ...]) -> set[str]:
    try:
        function = function_of(kernel)
    except (ValueError, TypeError):
        return set()
    if (tree := tree_of(kernel)) is None or function in outer:
        return set()
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    above = {inner: outer for outer in ast.walk(tree) for inner in ast.iter_child_nodes(outer)}
    uses: dict[str, list[ast.Name]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not _decorates(node, tree, above):
            uses.setdefault(node.id, []).append(node)

    def fits(argument: str) -> bool:
        names = [argument]
        for name in names:  # grows by the other names of the address
            for use in uses.get(name, []):
                address, around = _address(use, above)
                if isinstance(around, ast.Attribute) and around.attr in OF_ITS_TYPE:
                    continue
                if isinstance(around, ast.Assign) and [type(each) for each in around.targets] == [ast.Name]:
                    names += [each.id for each in around.targets if isinstance(each, ast.Name) and each.id not in names]
                elif not (
                    isinstance(around, ast.Call) and _accesses(around, address, known, access, (*outer, function))
                ):
                    return False
        return True

    return {each.arg for each in tree.args.args if each.arg in uses and fits(each.arg)}


def _decorates(node: ast.AST, tree: ast.FunctionDef, above: Mapping[ast.AST, ast.AST]) -> bool:
    while node in above and above[node] is not tree:
        node = above[node]
    return node in tree.decorator_list


def _address(use: ast.AST, above: Mapping[ast.AST, ast.AST]) -> tuple[ast.AST, ast.AST]:
    """The sum that `use` is part of, and what contains that sum."""
    outer = above[use]
    while isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Add | ast.Sub):
        use, outer = outer, above[outer]
    return use, above[outer] if isinstance(outer, ast.keyword) else outer


def _accesses(call: ast.Call, address: ast.AST, known: Mapping[str, Any], access: str, outer: tuple[Any, ...]) -> bool:
    """Whether a call accesses the address only in this way, as its first argument, or hands it to such a function."""
    from triton import language

    called = _named(call.func, known)
    if called is None:
        return False
    if called is getattr(language, access):
        return call.args[:1] == [address]
    try:
        names = list(inspect.signature(function_of(called)).parameters)
    except (ValueError, TypeError):
        return False
    given = [*zip(names, call.args), *((each.arg, each.value) for each in call.keywords)]
    places = [name for name, value in given if value is address]
    return bool(places) and set(places) <= _only(called, access, outer)


def _named(node: ast.AST, known: Mapping[str, Any]) -> Any:
    """The value of a name, with dots, in the source code; None for any other expression."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (inner := _named(node.value, known)) is not None:
        return getattr(inner, node.attr, None)
    return None
