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


READING = ("status", "best", "table")  # commands that read a study and compute nothing


@pytest.fixture
def study(describe, search):
    """The database of a study that has ended, with a control arm."""
    config = describe(budget="{trials: 3}")
    arms = {"control-random": {"strategy": "random", "share": 0.34}}
    config = type(config)(**{**config.model_dump(), "arms": arms})
    search(config).close()
    return config.storage


def modules_of(*command: str) -> set[str]:
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    return set((ended.stdout + ended.stderr).split())  # with --json only the result is on stdout


def test_the_reports_import_no_heavy_library():
    assert not modules_of("-c", IMPORT_ALL) & HEAVY


def modules_of_command(*command: str) -> set[str]:
    code = (
        "import atexit, sys; from nas.cli import main; atexit.register(lambda: print(*sorted(sys.modules)));"
        "sys.argv = ['nas', *sys.argv[1:], '--json']; main()"
    )
    return modules_of("-c", code, *command)


def modules_of_commands(commands: list[list[str]], study) -> set[str]:
    """Of a process that runs them one after the other, as JSON: a table for people is drawn by rich."""
    code = f"""
import contextlib, io, sys
from nas.cli.app import run
for command in {commands}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        run([*command, "--json", "--storage", sys.argv[1]])
print(*sorted(sys.modules))
"""
    return modules_of("-c", code, study)


def test_a_command_that_reads_a_study_imports_no_heavy_library(study):
    commands = [*([name, "tried"] for name in READING[:-1]), [READING[-1]], ["show", "tried:1"]]
    found = modules_of_commands(commands, study)

    assert "sqlalchemy" in found
    assert {f"nas.cli.study.{name}" for name in READING} <= found
    assert not found & (HEAVY - {"sqlalchemy", "pydantic"} | {"sqlalchemy.orm", "alembic", "rich", "scipy"})


def test_reports_and_cleaning_import_neither_torch_nor_a_server(study, tmp_path):
    commands = [["clean", "tried", "--dry-run"], ["report", "tried", "--out", str(tmp_path / "report.html")]]
    found = modules_of_commands(commands, study)

    assert {"nas.upkeep.cleaning", "dashboards.sent.write"} <= found
    assert not found & {
        "torch",
        "ray",
        "optuna",
        "scipy",
        "nas.tasks",
        "nas.config.parts",
        "searchspace.model",
        "tuner",
    }
    assert not found & {"starlette", "uvicorn", "alembic", "sklearn"}
    assert (tmp_path / "report.html").exists()


def test_the_export_of_an_architecture_as_yaml_imports_neither_torch_nor_what_trains(study, tmp_path):
    found = modules_of_command("export", "tried", "--best", "--out", str(tmp_path / "best.yaml"), "--storage", study)

    assert "sqlalchemy" in found
    assert not found & {"torch", "ray", "optuna", "scipy", "searchspace.model", "kernels", "tuner"}
    assert (tmp_path / "best.yaml").exists()
