"""Reports need neither torch nor a search: a page or a command that reads a study starts quickly."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "optuna", "numpy", "scipy", "sqlalchemy", "pydantic", "searchspace.model", "kernels", "tuner"}
IMPORT_ALL = """
import importlib, pkgutil, sys
import nas.report
for module in pkgutil.walk_packages(nas.report.__path__, "nas.report."):
    importlib.import_module(module.name)
print(*sorted(sys.modules))
"""


@pytest.fixture
def study(describe, search):
    """The database of a study that has ended."""
    config = describe(budget="{trials: 3}")
    search(config).close()
    return config.storage


def modules_of(*command: str) -> set[str]:
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def test_the_reports_import_no_heavy_library():
    assert not modules_of("-c", IMPORT_ALL) & HEAVY


def modules_of_command(*command: str) -> set[str]:
    code = (
        "import atexit, sys; from nas.cli import main; atexit.register(lambda: print(*sorted(sys.modules)));"
        "sys.argv = ['nas', *sys.argv[1:], '--json']; main()"
    )
    return modules_of("-c", code, *command)


@pytest.mark.parametrize("command", [["status", "tried"], ["show", "tried:1"]])
def test_a_command_that_reads_a_study_imports_no_heavy_library(study, command):
    found = modules_of_command(*command, "--storage", study)

    assert "sqlalchemy" in found
    assert not found & (HEAVY - {"sqlalchemy", "pydantic"} | {"sqlalchemy.orm", "alembic", "rich", "scipy"})


def test_the_export_of_an_architecture_as_yaml_imports_neither_torch_nor_what_trains(study, tmp_path):
    found = modules_of_command("export", "tried", "--best", "--out", str(tmp_path / "best.yaml"), "--storage", study)

    assert "sqlalchemy" in found
    assert not found & {"torch", "ray", "optuna", "scipy", "searchspace.model", "kernels", "tuner"}
    assert (tmp_path / "best.yaml").exists()
