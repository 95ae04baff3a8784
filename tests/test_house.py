"""What holds for all packages: light imports, pins, private paths, and what the pages name."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import QUICK

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("nas", "searchspace", "kernels", "tuner", "dashboards", "benchmarks")


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh Python holds after `statement`, the standard library left out."""
    code = f"{QUICK}import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in result.stdout.split()} - sys.stdlib_module_names


@pytest.mark.parametrize("package", ["nas", "kernels", "searchspace", "tuner"])
def test_importing_a_package_imports_nothing_but_itself(package):
    assert modules_after(f"import {package}") == {package}


def test_the_command_line_starts_without_the_heavy_libraries():
    heavy = {"torch", "ray", "optuna", "scipy", "sklearn"}

    assert not modules_after("from nas.cli.app import discover; discover()") & heavy


STEPS = {
    "space": "import kernels.dispatch.registry as k, searchspace.registry as s; k.operations(); s.block_types()",
    "strategies": "import nas.strategies.registry as r; r.strategies()",
    "call": "import torch; from kernels.rowwise.softmax import softmax; "
    "softmax(torch.ones(8, 8, requires_grad=True)).sum().backward()",
    "tuner": "import tuner.measure.measure",
}


@pytest.fixture(scope="module")
def loaded():
    """The modules after each step, one step after the other in one process: torch takes seconds to import."""
    every = "; ".join(f"{step}; print(*sys.modules)" for step in STEPS.values())
    done = subprocess.run(
        [sys.executable, "-c", f"{QUICK}import sys; {every}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return dict(zip(STEPS, map(set, map(str.split, done.stdout.splitlines())), strict=True))


def test_reading_a_space_loads_neither_the_compiler_nor_triton(loaded):
    """1.4 s of every command, and of every worker; the counter of FLOPs would bring Triton along."""
    assert loaded["space"].isdisjoint({"torch._dynamo", "triton", "torch.utils.flop_counter"})


def test_finding_strategies_does_not_wait_for_optuna_or_ray(loaded):
    assert "nas.strategies.registry" in loaded["strategies"]
    assert loaded["strategies"].isdisjoint({"optuna", "ray"})


def test_a_call_of_an_operation_never_tunes(loaded):
    """Neither forward nor backward: what tunes is not even loaded."""
    assert "tuner" not in loaded["call"]


def test_the_tuner_runs_where_ray_and_optuna_are_missing(loaded):
    assert "tuner.measure.measure" in loaded["tuner"]
    assert loaded["tuner"].isdisjoint({"ray", "optuna", "sqlalchemy"})


def test_kernels_is_not_mistaken_for_the_distribution_of_that_name():
    """Other libraries try `from kernels import ...` and go on without it after an ImportError alone."""
    import kernels

    assert not hasattr(kernels, "__version__")
    with pytest.raises(ImportError):
        exec("from kernels import get_kernel")


def requirements() -> list[Requirement]:
    """Every direct dependency, those of the extras and of the build too."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    lists = [document["build-system"]["requires"], project["dependencies"], *project["optional-dependencies"].values()]
    found = [Requirement(text) for listed in lists for text in listed]
    return [requirement for requirement in found if requirement.name != project["name"]]


def test_every_direct_dependency_is_pinned_to_a_version_in_its_range():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {pin.name.lower(): pin for pin in map(Requirement, (line for line in lines if line[:1] not in ("", "#")))}

    for requirement in requirements():
        pin = pins.get(requirement.name.lower())
        assert pin, f"constraints.txt does not pin {requirement.name}"
        (version,) = pin.specifier
        assert version.operator == "=="
        assert requirement.specifier.contains(version.version), f"{pin} is outside of {requirement}"


def test_no_file_names_a_path_of_the_machine_it_was_written_on():
    private = re.compile(rb"(?<![\w.~-])/(?:home|Users|root|work)/[\w.-]+")
    wrong = [
        f"{path.relative_to(ROOT)}: {found.group().decode()}"
        for path in committed()
        for found in [private.search(path.read_bytes())]
        if found
    ]

    assert not wrong, "\n".join(wrong)


def committed() -> list[Path]:
    """The files under version control; in an unpacked archive, all that are not of an environment or a cache."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not any(part in path.parts for part in (".venv", "__pycache__"))]
    return [path for path in paths if path.is_file()]


def test_the_page_of_the_zoo_says_what_every_model_is_for():
    from searchspace import zoo

    rows = [line for line in (ROOT / "docs/zoo.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}

    assert not set(zoo.names()) - named
