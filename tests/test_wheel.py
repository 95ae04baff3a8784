"""The wheel works where no checkout is: every package and file is in it, and the commands run from it."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import QUICK

SEARCH = """
study: tiny
space:
  kind: decoder
  width: !choice [8, 16]
  vocabulary: 256
  body:
    - residual: {norm: rms_norm, of: !choice [attention: {heads: 2}, gru]}
    - residual: {norm: rms_norm, of: feed_forward}
task: {language_model: {length: 16, batch: 4, evaluation: 256}}
objectives: [bits_per_byte, flops]
strategy: random
scheduler: {full: {steps: 2}}
budget: {trials: 4}
runner: {inline: {process: false}}
"""
PACKAGES = ("nas", "searchspace", "kernels", "tuner", "dashboards")
GENERATED = {"build", "runs", ".venv"}


def run(*command: object, cwd: Path, **environment: str) -> str:
    """What `command` prints. Fails with what it said."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sources(root, tmp_path_factory):
    """A copy of the files that git tracks, so that building writes nothing into the checkout."""
    if not (root / ".git").exists():
        pytest.skip("needs a git checkout")
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path_factory.mktemp("sources")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root).split("\0")
    for name in filter(None, names):
        if (root / name).is_file() and not name.startswith("tests/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((root / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def built(sources, tmp_path_factory):
    """(wheel, sdist), built by the backend that pyproject.toml names."""
    out = tmp_path_factory.mktemp("dist")
    code = f"""
import setuptools.build_meta as backend
print(backend.build_sdist({str(out)!r})); print(backend.build_wheel({str(out)!r}))
"""
    run(sys.executable, "-W", "ignore", "-c", code, cwd=sources)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def test_every_file_of_every_package_is_in_the_wheel_and_the_sdist(built, sources):
    wheel, sdist = built
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        str(path.relative_to(sources))
        for package in PACKAGES
        for path in (sources / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert not wanted - in_wheel
    assert not wanted - in_sdist
    assert {"LICENSE", "NOTICE", "README.md"} <= in_sdist
    assert {Path(name).name for name in in_wheel if ".dist-info/licenses/" in name} == {"LICENSE", "NOTICE"}


COMMANDS = """
import contextlib, sys, nas.cli, searchspace, kernels, tuner
print(*(package.__file__ for package in (nas, searchspace, kernels, tuner)))
for line in ("zoo", "search tiny.yaml --quiet", "export tiny --best -o best.yaml"):
    with contextlib.suppress(SystemExit):
        sys.argv = ["nas", *line.split()]
        nas.cli.main()
print("torch._dynamo" in sys.modules)
"""


def test_the_commands_run_from_an_installed_wheel(built, tmp_path):
    """Dependencies come from the current environment, our packages from the wheel; one process, for torch is slow."""
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    install += ("--target", site)
    run(sys.executable, "-m", "pip", *install, built[0], cwd=work)
    (work / "tiny.yaml").write_text(SEARCH)
    printed = run(sys.executable, "-c", QUICK + COMMANDS, cwd=work, PYTHONPATH=str(site), OMP_NUM_THREADS="1")
    places, _, rest = printed.partition("\n")

    assert all(place.startswith(str(site)) for place in places.split())
    assert "universal_transformer" in rest
    assert "kind: decoder" in (work / "best.yaml").read_text()
    assert rest.endswith("False\n"), "what trains imports torch's compiler, which takes 2 s of CPU in every process"
