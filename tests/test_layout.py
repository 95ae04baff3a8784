"""The layout of the code: imports in one direction, and what docstrings say."""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [name for name in ("kernels", "searchspace", "tuner", "nas", "dashboards") if (ROOT / name).is_dir()]
ALLOWED_IMPORTS = {  # which of our own modules each package may import
    "nas.store": ("nas.store", "nas.documents", "nas.errors", "nas.metrics", "nas.numbers", "nas.pareto", "nas.work"),
    "tuner": ("tuner", "kernels", "nas.store", "nas.errors", "nas.files", "nas.registry", "nas.threads", "nas.child"),
    "kernels": ("kernels",),
    "searchspace": ("searchspace", "kernels"),
}


def test_every_test_stands_where_its_subject_does():
    """tests/kernels/attention exists because kernels/attention does."""
    stray = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if len(path.relative_to(ROOT / "tests").parts) > 1
        and not (ROOT / path.relative_to(ROOT / "tests")).parent.is_dir()
    ]

    assert not stray


@pytest.fixture(scope="module")
def with_benchmarks() -> dict[str, ast.Module]:
    """Every module by its dotted name, those of the benchmarks too."""
    return {
        name(path): ast.parse(path.read_text(encoding="utf-8"))
        for package in (*PACKAGES, "benchmarks")
        for path in (ROOT / package).rglob("*.py")
    }


@pytest.fixture(scope="module")
def modules(with_benchmarks) -> dict[str, ast.Module]:
    """Every module of the packages by its dotted name."""
    return {each: tree for each, tree in with_benchmarks.items() if each.partition(".")[0] in PACKAGES}


def test_no_modules_import_one_another_in_a_circle(modules):
    """Imports inside functions count, those for type checkers do not. A package may import its own parts."""
    arrows = {
        module: {
            each
            for each in imported(tree)
            if each in modules and not f"{module}.".startswith(f"{each}.") and not f"{each}.".startswith(f"{module}.")
        }
        for module, tree in modules.items()
    }

    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError that names the circle


@pytest.mark.parametrize("package", ALLOWED_IMPORTS)
def test_a_package_imports_only_what_it_builds_on(package, modules):
    """Imports for type checkers count too."""
    allowed = ALLOWED_IMPORTS[package]
    wrong = [
        f"{module}:{line} imports {each}"
        for module, tree in modules.items()
        if f"{module}.".startswith(f"{package}.")
        for line, each in imports(tree)
        if each.partition(".")[0] in (*PACKAGES, "benchmarks")
        and not any(f"{each}.".startswith(f"{known}.") for known in allowed)
    ]

    assert not wrong, "\n".join(wrong)


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, `from nas import store` as nas.store."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in (*PACKAGES, "benchmarks"):
                yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)
            else:
                yield node.lineno, node.module


def test_every_module_says_what_it_is(with_benchmarks):
    own = "nas.exports.templates.model"  # an export gives it a docstring about its model
    silent = [module for module, tree in with_benchmarks.items() if not ast.get_docstring(tree) and module != own]

    assert not silent, f"modules without a docstring: {', '.join(silent)}"


def name(path: Path) -> str:
    """nas/store/store.py -> nas.store.store."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.Module) -> Iterator[str]:
    """The dotted names that a module imports: modules, and what may be modules of packages."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            left += node.orelse
        elif not isinstance(node, ast.expr):  # no expression holds an import
            left += ast.iter_child_nodes(node)


RAISES = re.compile(r"\b[Rr]aises?\b")
SHAPES = re.compile(r"\[|\bshapes?\b|\bscalar\b|\bas for `")  # [B, T, C], in words, or where to find them
INHERITED = {"forward", "backward", "setup_context", "cost"}  # the contracts of their classes say it


def test_every_public_function_that_raises_says_so(modules):
    silent = [
        f"{module}:{function.lineno} {function.name}"
        for module, tree in modules.items()
        if not module.startswith("nas.cli.")  # the help of a command is its docstring
        for function, _ in public_functions(tree)
        if any(isinstance(node, ast.Raise) and raised(node) for node in body(function))
        and not RAISES.search(ast.get_docstring(function) or "")
    ]

    assert not silent, f"say when these raise: {', '.join(silent)}"


def test_every_public_function_on_tensors_gives_shapes(modules):
    silent = [
        f"{module}:{function.lineno} {function.name}"
        for module, tree in modules.items()
        for function, of_class in public_functions(tree)
        if function.name not in INHERITED
        and is_about_tensors(function)
        and not SHAPES.search((ast.get_docstring(function) or "") + of_class)
    ]

    assert not silent, f"give the shapes of: {', '.join(silent)}"


def test_shapes_are_found_where_a_docstring_refers_to(modules):
    """`as for `x`` says nothing if x gives no shapes itself."""
    known: dict[str, list[str]] = {}
    for tree in modules.values():
        for function, _ in public_functions(tree):
            known.setdefault(function.name, []).append(ast.get_docstring(function) or "")
    lost = [
        f"{module}:{function.lineno} {function.name} refers to {reference}"
        for module, tree in modules.items()
        for function, _ in public_functions(tree)
        if is_about_tensors(function)
        for reference in re.findall(r"\bas for `(?:\w+\.)?(\w+)`", ast.get_docstring(function) or "")
        if reference in known and not any("[" in text for text in known[reference])
    ]

    assert not lost, "\n".join(lost)


def public_functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Functions and methods without an underscore, each with the docstring of its class."""
    todo: list[tuple[ast.AST, str]] = [(node, "") for node in tree.body]
    while todo:
        node, of_class = todo.pop()
        named = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        if named and isinstance(node, ast.ClassDef):
            todo += [(each, ast.get_docstring(node) or "") for each in node.body]
        elif named and isinstance(node, ast.FunctionDef):
            yield node, of_class


def body(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, but not those of functions inside it."""
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)


def raised(node: ast.Raise) -> bool:
    """Whether an error is raised for the caller: neither one that is passed on, nor a sign of a mistake in our code."""
    return node.exc is not None and not re.match("NotImplementedError|AssertionError", ast.unparse(node.exc))


def is_about_tensors(function: ast.FunctionDef) -> bool:
    """Whether it takes or returns tensors."""
    return any(map(takes_a_tensor, arguments(function))) or gives_tensors(function.returns)


def arguments(function: ast.FunctionDef) -> list[ast.arg]:
    """The parameters, those that can only be given by name too."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def gives_tensors(returned: ast.expr | None) -> bool:
    """Whether tensors are returned, alone or in a list or tuple. Those of a state dict have any shape."""
    text = "" if returned is None else ast.unparse(returned)
    return re.search(r"\bTensor\b", text) is not None and not re.search(r"\b(dict|Mapping|Iterator)\[", text)


def takes_a_tensor(argument: ast.arg) -> bool:
    return argument.annotation is not None and "Tensor" in ast.unparse(argument.annotation).split(" | ")
