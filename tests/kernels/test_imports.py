"""Modules of kernels do not import each other in a cycle, also not inside functions."""

import ast
import graphlib


def test_no_modules_import_each_other_in_a_cycle(root):
    files = {".".join(path.relative_to(root).with_suffix("").parts): path for path in root.glob("kernels/**/*.py")}
    graph = {}
    for module, path in files.items():
        graph[module] = imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        imported &= files.keys()
    assert sum(map(len, graph.values())) > 100
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules of the cycle
