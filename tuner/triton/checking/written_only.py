"""Which arguments a Triton kernel writes and never reads: what their memory holds before a run cannot matter.

Such a tensor of whole numbers may hold other numbers before a check, so that an output that is left out shows. In any
other one whole numbers are left alone, because a kernel may use them as addresses. The source code decides: an argument
counts only if every use of it is the address of a `tl.store`, alone, with offsets added, or under another name, or asks
for its dtype.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from tuner.triton.jit_source import called_from, function_of, tree_of

OF_ITS_TYPE = ("dtype", "type")  # attributes of an address that say nothing of what its memory holds


def written_only(kernel: Any) -> set[str]:
    """The names of these arguments; empty if the source code cannot be read."""
    try:
        function = function_of(kernel)
        tree = tree_of(function)
    except (ValueError, TypeError):
        return set()
    if tree is None:
        return set()
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    above = {inner: outer for outer in ast.walk(tree) for inner in ast.iter_child_nodes(outer)}
    uses: dict[str, list[ast.Name]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(node)
    return {each.arg for each in tree.args.args if each.arg in uses and _is_written_only(each.arg, uses, above, known)}


def _is_written_only(
    argument: str, uses: Mapping[str, list[ast.Name]], above: Mapping[ast.AST, ast.AST], known: Mapping[str, Any]
) -> bool:
    names = [argument]
    for name in names:  # grows by the other names of the address
        for use in uses.get(name, []):
            address, outer = _address(use, above)
            if isinstance(outer, ast.Attribute) and outer.attr in OF_ITS_TYPE:
                continue
            if isinstance(outer, ast.Assign) and [type(each) for each in outer.targets] == [ast.Name]:
                names += [each.id for each in outer.targets if isinstance(each, ast.Name) and each.id not in names]
            elif not (isinstance(outer, ast.Call) and outer.args[:1] == [address] and _is_store(outer, known)):
                return False
    return True


def _address(use: ast.AST, above: Mapping[ast.AST, ast.AST]) -> tuple[ast.AST, ast.AST]:
    """The sum that `use` is part of, and what contains that sum."""
    outer = above[use]
    while isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Add | ast.Sub):
        use, outer = outer, above[outer]
    return use, outer


def _is_store(call: ast.Call, known: Mapping[str, Any]) -> bool:
    from triton import language

    return called_from(call, known) is language.store
