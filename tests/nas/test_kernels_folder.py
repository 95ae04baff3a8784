"""Hugging Face publishes a distribution `kernels`: whatever shares our folder, both work or the cure is named."""

import os
import shutil
import subprocess
import sys

import pytest

THEIRS = "__version__ = '0.18.2'\nfrom kernels.load import get_kernel\n"


@pytest.fixture
def site(tmp_path, root):
    """A folder with our package `kernels` as pip would install it."""
    shutil.copytree(root / "kernels", tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def install_theirs(site):
    """Their distribution, written into the same folder: only `__init__.py` is a file of both."""
    (site / "kernels").mkdir(exist_ok=True)
    (site / "kernels" / "load.py").write_text("def get_kernel(): return 'theirs'\n")
    (site / "kernels" / "__init__.py").write_text(THEIRS)
    (site / "kernels-0.18.2.dist-info").mkdir()
    (site / "kernels-0.18.2.dist-info" / "METADATA").write_text("Name: kernels\nVersion: 0.18.2\n")


def run(code, site, root):
    path = os.pathsep.join([str(site), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, cwd=site, capture_output=True, text=True
    )
    return (done.stdout + done.stderr).strip()


PROBLEM = "from nas import kernels_folder; print(kernels_folder.problem())"
CHECK = "from nas import kernels_folder; kernels_folder.check(); print('fine')"


def test_ours_alone_is_fine(site, root):
    assert run(PROBLEM, site, root) == "None"


def test_both_work_if_theirs_was_installed_last(site, root):
    install_theirs(site)

    both = "import kernels, kernels.dispatch.registry as r; print(kernels.get_kernel(), r.__name__)"
    assert run(both, site, root) == "theirs kernels.dispatch.registry"
    assert run(PROBLEM, site, root) == "None"


def test_names_the_cure_if_ours_was_installed_last(site, root):
    install_theirs(site)
    shutil.copy(root / "kernels" / "__init__.py", site / "kernels")

    cure = "`pip install --force-reinstall --no-deps kernels`"
    assert cure in run("from kernels import get_kernel", site, root)
    assert cure in run(PROBLEM, site, root)
    assert run(CHECK, site, root) == "fine"  # ours works all the same
    assert run("from kernels import dispatch, load; print(load.get_kernel())", site, root) == "theirs"


def test_names_the_cure_if_python_finds_theirs_first(tmp_path, root):
    install_theirs(tmp_path)

    for code in (CHECK, "import nas; nas.build('primer:tiny')"):
        assert "ImportError: Python finds Hugging Face's package `kernels`" in run(code, tmp_path, root)


def test_the_command_line_explains_it_at_once_and_doctor_still_runs(site, root):
    shutil.rmtree(site / "kernels")
    install_theirs(site)
    # Ray, PyTorch and a training, which doctor tries too, take seconds.
    few = "doctor.CHECKS = {name: doctor.CHECKS[name] for name in ('python', 'packages', 'kernels')}"
    command = f"from nas import doctor; {few}; from nas.cli.app import run; run(['%s'])"
    assert run(command % "--version", site, root).startswith("error: Python finds Hugging Face's package")
    assert "error: Python finds" not in run(command % "doctor", site, root).splitlines()[0]
