"""Rewrites the text of a module so that its operations run as plain PyTorch: without tables, kernels and conditions on
the mode. The tests compare the result with the model inside `kernels.dispatch.plain()`.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from nas.exports.bundle.edits import Edit, Text, applied

ROUNDS = 40  # each removes one level of nesting
MODE = {"is_plain": "True", "untouched": "False"}  # calls with a known result
LEFT_OUT = {"scale_residual_outputs"}  # calls that only choose initial weights
OF_TORCH = ("sdpa", "torch")  # implementations that are PyTorch's own function
CONFIG = re.compile(
    r"(\n\s*\*,)?\n\s*config: Choice \| None = None,(?=\n\s*\))"
    r"|\n\s*\*, config: Choice \| None = None,(?=\n\s*\))"
    r"|(, \*)?, config: Choice \| None = None"
)
DOCUMENTED = re.compile(r"`config`|`?\btuned\b|[Tt]riton|`sdpa`|`blocked`|Implementations:")


def folded(text: str) -> str:
    """`text` with the plain code instead of the dispatch, and without code that is then unreachable."""
    operations = _plain_code(Text(text))
    choosers: dict[str, str] = {}
    for _ in range(ROUNDS):
        source = Text(text)
        choosers |= _choosers(source) if operations else {}
        edits = list(_edits(source, operations, choosers))
        if not edits:
            edits = list(_unused(source)) if operations else []
        if not edits:
            break
        text = applied(text, edits)
    return _without_config(text) if operations else text


def _plain_code(source: Text) -> dict[str, str]:
    """{name of an operation: expression of its plain code}."""
    found = {}
    for node in source.tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        for call in ast.walk(node.value):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Operation":
                given = {each.arg: source.of(each.value) for each in call.keywords}
                own = _of_torch(source, call) or given.get("plain", given["reference"])
                found[node.targets[0].id] = own
    return found


def _of_torch(source: Text, operation: ast.Call) -> str | None:
    """PyTorch's own function for an operation, if it is an implementation: it is faster than the definition."""
    functions = {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    for call in ast.walk(operation):
        if isinstance(call, ast.Call) and _name(call.func) == "Implementation" and len(call.args) > 1:
            name, code = source.of(call.args[0]).strip('"'), source.of(call.args[1])
            if name in OF_TORCH and code in functions:
                return code
    return None


def _choosers(source: Text) -> dict[str, str]:
    """Functions that only return the plain code of an operation, with the name of that code."""
    found = {}
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and node.args.args[-1:] and node.args.args[-1].arg == "config":
            last = node.body[-1]
            if isinstance(last, ast.Return) and isinstance(last.value, ast.Name):
                found[node.name] = last.value.id
    return found


def _edits(source: Text, operations: dict[str, str], choosers: dict[str, str]) -> Iterator[Edit]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield from _call(source, node, operations, choosers)
        elif isinstance(node, ast.BoolOp):
            yield from _bool(source, node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _known(node.operand) is not None:
            yield (*source.span(node), str(not _known(node.operand)))
        elif isinstance(node, ast.IfExp) and _known(node.test) is not None:
            yield (*source.span(node), _operand(source, node.body if _known(node.test) else node.orelse))
        elif isinstance(node, ast.If) and _known(node.test) is not None:
            yield from _if(source, node)
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from _block(source, block)


def _known(node: ast.expr) -> bool | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def _name(node: ast.expr) -> str:
    """The last name of `a.b.c`, or ""."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _call(source: Text, node: ast.Call, operations: dict[str, str], choosers: dict[str, str]) -> Iterator[Edit]:
    name = _name(node.func)
    if name in MODE and (name == "is_plain" or source.of(node.func) == "tuned.untouched"):
        yield (*source.span(node), MODE[name])
    elif source.of(node.func) == "tuned.implementation":
        yield (*source.span(node), operations[source.of(node.args[0])])
    elif isinstance(node.func, ast.Name) and node.func.id in choosers:
        yield (*source.span(node), choosers[node.func.id])
    elif source.of(node.func) == "tuned.launch":
        operation, *arguments = [source.of(each) for each in [node.args[0], *node.args[3:]]]
        arguments += [source.of(each) for each in node.keywords]
        yield (*source.span(node), f"{operations[operation]}({', '.join(arguments)})")


def _bool(source: Text, node: ast.BoolOp) -> Iterator[Edit]:
    """`a or True` is True, `a and True` is a."""
    decides = isinstance(node.op, ast.Or)
    if any(_known(each) is decides for each in node.values):
        yield (*source.span(node), str(decides))
    elif any(_known(each) is not None for each in node.values):
        left = [_operand(source, each) for each in node.values if _known(each) is None]
        yield (*source.span(node), (" or " if decides else " and ").join(left) or str(not decides))


def _operand(source: Text, node: ast.expr) -> str:
    text = source.of(node)
    return f"({text})" if isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr) else text


def _if(source: Text, node: ast.If) -> Iterator[Edit]:
    start, end = source.lines(node, comments=False)
    chosen = node.body if _known(node.test) else node.orelse
    if source.of(node).startswith("elif"):
        if chosen is node.body:
            yield start, end, " " * node.col_offset + "else:\n" + source.block(node.body, node.col_offset + 4)
        return
    yield start, end, source.block(chosen, node.col_offset) if chosen else ""


def _block(source: Text, block: list[ast.stmt]) -> Iterator[Edit]:
    """Remove unreachable code after a return, and calls that only choose initial weights."""
    for place, node in enumerate(block):
        if isinstance(node, ast.Return | ast.Raise) and block[place + 1 :]:
            start, end = source.lines(block[place + 1])[0], source.lines(block[-1])[1]
            yield start, end, ""
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value.func) in LEFT_OUT:
            yield (*source.lines(node), "")


def _unused(source: Text) -> Iterator[Edit]:
    """Remove local values that only described the problem for the tables."""
    for function in source.tree.body:
        if isinstance(function, ast.FunctionDef):
            read = {
                node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            yield from _unread(source, function.body, read)


def _unread(source: Text, block: list[ast.stmt], read: set[str]) -> Iterator[Edit]:
    for node in block:
        if isinstance(node, ast.If):
            inside = list(_unread(source, node.body, read))
            if len(inside) == len(node.body) and not node.orelse:
                yield (*source.lines(node), "")
            else:
                yield from inside
                if len(list(_unread(source, node.orelse, read))) < len(node.orelse):
                    yield from _unread(source, node.orelse, read)
            continue
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        names = [each for target in targets for each in ast.walk(target)]
        plain = (ast.Name, ast.Tuple, ast.Store)
        if names and all(isinstance(each, plain) for each in names):
            written = {each.id for each in names if isinstance(each, ast.Name)}
            if not written & read:
                yield (*source.lines(node), "")
            elif isinstance(node, ast.Assign) and written - read - {"_"}:
                yield from _partly(source, node, read)


def _partly(source: Text, node: ast.Assign, read: set[str]) -> Iterator[Edit]:
    """Simplify an assignment to several names if some of these names are never read."""
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple):
        return
    simple = all(isinstance(each, ast.Name) for each in target.elts)
    if simple and isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        kept = [
            (source.of(one), source.of(other))
            for one, other in zip(target.elts, value.elts)
            if not isinstance(one, ast.Name) or one.id in read
        ]
        names, values = (", ".join(each) for each in zip(*kept))
        yield (*source.span(node), f"{names} = {values}")
        return
    for each in ast.walk(target):
        if isinstance(each, ast.Name) and each.id not in read and each.id != "_":
            yield (*source.span(each), "_")


def _without_config(text: str) -> str:
    """The launchers without their parameter `config`, and their docstrings without sentences about tables."""
    text = CONFIG.sub("", text)
    source = Text(text)
    edits: list[Edit] = []
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and (found := ast.get_docstring(node, clean=False)):
            kept = _documented(found)
            if kept != found:
                edits.append((*source.span(node.body[0]), f'"""{kept}"""'))
    return applied(text, edits)


def _documented(docstring: str) -> str:
    """`docstring` without its sentences about tables and kernels."""
    if not DOCUMENTED.search(docstring):
        return docstring
    kept = []
    for part in re.split(r"\n\s*\n", docstring.rstrip()):
        if not DOCUMENTED.search(part):
            kept.append(part)
            continue
        sentences = [each for each in re.split(r"(?<=\.)\s+", part.strip()) if not DOCUMENTED.search(each)]
        if sentences:
            indent = "    " if kept else ""
            kept.append(textwrap.fill(" ".join(sentences), 112, initial_indent=indent, subsequent_indent="    "))
    text = "\n\n".join(kept)
    return f"{text}\n    " if "\n" in text else text


def about(docstring: str) -> str:
    """The docstring of a module without paragraphs about implementations."""
    parts = re.split(r"\n\s*\n", docstring.strip())
    return "\n\n".join(each for place, each in enumerate(parts) if not place or not DOCUMENTED.search(each))
