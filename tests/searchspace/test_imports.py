"""How the modules of searchspace import each other, and what `import searchspace` gives."""

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

import searchspace


def test_no_module_imports_itself_through_others():
    graph = grimp.build_graph("searchspace", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_public_names_are_listed_and_imported_when_used():
    assert set(searchspace.__all__) == set(searchspace._HOMES) <= set(dir(searchspace))
    for name in searchspace.__all__:
        assert getattr(searchspace, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Architectur'"):
        searchspace.Architectur  # noqa: B018


def test_the_package_and_the_language_of_costs_need_no_torch():
    code = "import sys, searchspace, searchspace.cost, searchspace.errors; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_names_work_together():
    architecture = searchspace.load_zoo("gru", "tiny")
    module = searchspace.build(architecture)
    cost = searchspace.cost_of(architecture, searchspace.Shape(length=16))
    assert sum(parameter.numel() for parameter in module.parameters()) == cost.parameters
