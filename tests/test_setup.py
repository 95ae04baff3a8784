"""scripts/setup on pretended machines: a PATH of its own, a Python that only pretends, nothing installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the script needs a POSIX shell")

TOOLS = ("sh", "dirname", "df", "awk", "cat", "cksum", "cut", "tail", "rm", "uname", "mkdir", "cp")

PYTHON = """#!/bin/sh
# A Python that answers what the script asks it, and notes what it is told to do.
case "$*" in
    *"version_info < (3, 11)"*) exit {too_old} ;;
    *python_version*) echo {version} ;;
    *"import ensurepip, venv"*) exit {no_venv} ;;
    *CONFIG_ARGS*) exit {slow} ;;
    *Python.h*) exit {no_header} ;;
    *"-m venv"*) echo "$*" >>calls; rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
    *"-m pip"*) echo "$*" >>calls; [ ! -e pip-fails ] || {{ cat pip-fails; exit 1; }} ;;
esac
"""


@dataclass
class Machine:
    """A checkout and the programs of a pretended machine."""

    checkout: Path
    programs: Path

    def add(self, name: str, text: str) -> Path:
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def add_python(self, name: str = "python3", version: str = "3.11.9", **faults: bool) -> Path:
        """faults: no_venv, slow (compiled without optimisations), no_header."""
        too_old = tuple(int(part) for part in version.split(".")) < (3, 11)
        codes = dict.fromkeys(("no_venv", "slow", "no_header"), 0) | {"too_old": int(too_old)} | faults
        return self.add(name, PYTHON.format(version=version, **{name: int(code) for name, code in codes.items()}))

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "scripts" / "setup", *arguments],
            env={"PATH": str(self.programs), "HOME": str(self.checkout), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        """What the pretended Python was told since the last look."""
        path = self.checkout / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path, root):
    checkout, programs = tmp_path / "a folder", tmp_path / "programs"
    (checkout / "scripts").mkdir(parents=True)
    programs.mkdir()
    for name in ("pyproject.toml", "constraints.txt", "scripts/setup"):
        shutil.copy(root / name, checkout / name)
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))
    machine = Machine(checkout, programs)
    machine.add_python()
    return machine


def fails(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 1, result.stderr
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.stderr


def test_makes_the_environment_and_installs_a_pinned_torch_first(machine):
    result = machine.setup()

    assert result.returncode == 0, result.stderr
    assert machine.calls() == [
        "-m venv --clear .venv",
        "-m pip install --progress-bar off -c constraints.txt torch setuptools",
        "-m pip install --progress-bar off -c constraints.txt --no-build-isolation -e .[dashboard]",
    ]


def test_does_nothing_and_says_nothing_the_second_time(machine):
    machine.setup()
    machine.calls()
    result = machine.setup()

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert machine.calls() == []


def test_adds_what_the_tests_need_to_what_the_search_needs(machine):
    machine.setup()
    machine.calls()
    machine.setup("--test")

    assert machine.calls()[-1].endswith("-e .[test]")
    machine.setup()
    assert machine.calls() == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_installs_again_into_the_same_environment_when_requirements_change(machine, name):
    machine.setup()
    machine.calls()
    with (machine.checkout / name).open("a") as file:
        file.write("# changed\n")
    machine.setup()

    assert [call.split()[1] for call in machine.calls()] == ["pip", "pip"]


def test_makes_a_new_environment_for_another_python(machine):
    machine.setup()
    machine.calls()
    machine.add_python(version="3.12.1")
    machine.setup()

    assert machine.calls()[0] == "-m venv --clear .venv"


def test_makes_a_new_environment_when_the_folder_was_moved(machine):
    machine.setup()
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("elsewhere"))
    machine.calls()
    machine.setup()

    assert machine.calls()[0] == "-m venv --clear .venv"


def test_makes_an_installation_again_that_was_cut_short(machine):
    (machine.checkout / "pip-fails").write_text("killed")
    assert machine.setup().returncode == 1
    (machine.checkout / "pip-fails").unlink()
    machine.calls()
    result = machine.setup()

    assert result.returncode == 0
    assert len(machine.calls()) == 3
    assert not (machine.checkout / ".venv" / "unfinished").exists()


def test_installs_again_when_the_python_behind_the_environment_is_gone(machine):
    machine.setup()
    machine.calls()
    (machine.checkout / ".venv" / "bin" / "python").unlink()
    machine.setup()

    assert len(machine.calls()) == 3


def test_says_which_pythons_are_too_old(machine):
    machine.add_python("python3", "3.9.18")
    machine.add_python("python", "2.7.18")

    fails(machine.setup(), "3.11 or newer", "python3 is 3.9.18", "python is 2.7.18", "PYTHON=/path")
    assert machine.calls() == []


def test_says_when_there_is_no_python(machine):
    (machine.programs / "python3").unlink()

    fails(machine.setup(), "3.11 or newer", "no Python at all", "apt install")


@pytest.mark.parametrize("name", ["python3.11", "python3.12", "python3.13"])
def test_takes_a_newer_python_beside_an_old_one(machine, name):
    machine.add_python("python3", "3.9.18")
    machine.add_python(name, name.removeprefix("python") + ".4")

    assert machine.setup().returncode == 0


def test_passes_over_the_empty_shim_of_a_version_manager(machine):
    machine.add("python3", "#!/bin/sh\necho 'command not found' >&2; exit 127\n")
    machine.add_python("python3.12", "3.12.4")

    result = machine.setup()
    assert result.returncode == 0
    assert "command not found" not in result.stderr


def test_takes_the_python_it_is_given(machine, tmp_path):
    given = machine.add_python("mine", "3.13.2").rename(tmp_path / "mine")
    machine.add_python("python3", "3.9.18")

    result = machine.setup(PYTHON=str(given))
    assert result.returncode == 0
    assert "Python 3.13.2" in result.stderr


@pytest.mark.parametrize(("given", "words"), [("old", "is 3.10.2"), ("absent", "is not a Python that runs")])
def test_rejects_a_given_python_that_will_not_do(machine, given, words):
    machine.add_python("old", "3.10.2")

    fails(machine.setup(PYTHON=given), f"PYTHON={given} {words}", "3.11 or newer")


@pytest.fixture
def elsewhere(machine, tmp_path):
    """`elsewhere(name, ...)`: a Python in the second folder of the PATH."""

    def add(name: str, version: str, **faults: bool) -> dict[str, str]:
        made = machine.add_python(name, version, **faults)
        (tmp_path / "system").mkdir(exist_ok=True)
        made.rename(tmp_path / "system" / name)
        return {"PATH": f"{machine.programs}:{tmp_path / 'system'}"}

    return add


def test_takes_an_optimised_python_of_the_same_version_and_says_so(machine, elsewhere):
    path = elsewhere("python3.11", "3.11.2")
    assert "Python 3.11.9" in machine.setup(**path).stderr
    machine.add_python(slow=True)
    result = machine.setup(**path)

    assert "Python 3.11.2" in result.stderr
    for said in ("system/python3.11", "python3 (3.11.9) was compiled without optimisations", "make PYTHON=python3"):
        assert said in result.stderr
    assert machine.setup(**path).stderr == ""
    assert "Python 3.11.9" in machine.setup(PYTHON="python3", **path).stderr


@pytest.mark.parametrize(
    ("name", "version", "faults"),
    [
        ("python3.12", "3.12.1", {}),
        ("python3.11", "3.11.2", {"slow": True}),
        ("python3.11", "3.11.2", {"no_header": True}),
    ],
    ids=["another version", "as slow", "no header"],
)
def test_keeps_a_python_without_optimisations_where_no_other_will_do(machine, elsewhere, name, version, faults):
    machine.add_python(slow=True)
    result = machine.setup(**elsewhere(name, version, **faults))

    assert "Python 3.11.9" in result.stderr
    assert "optimisations" not in result.stderr


def test_says_how_to_get_venv(machine):
    machine.add_python(no_venv=True)

    fails(machine.setup(), "'venv'", "apt install python3-venv", "python3.11-venv")
    assert machine.calls() == []


def test_says_how_much_disk_is_missing_before_it_starts(machine):
    line = "/dev/vda 100000000 98976000 1024000 99% /"
    machine.add("df", f"#!/bin/sh\necho 'Filesystem 1024-blocks Used Available Capacity Mounted on'\necho '{line}'\n")

    fails(machine.setup(), "1000 MB are free", "about 3000 MB")
    assert machine.calls() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "The disk is full"),
        (
            "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError: Failed to establish a "
            "new connection'\nERROR: No matching distribution found for torch==2.13.0",
            "No package index answers",
        ),
        ("ERROR: No matching distribution found for torch==2.13.0", "no build for Python 3.11.9"),
        ("ERROR: ResolutionImpossible: for help visit the manual", "no build for Python 3.11.9"),
        ("ERROR: something that nobody foresaw", "something that nobody foresaw"),
    ],
    ids=["disk-full", "no-index", "no-build", "no-pinned-build", "unforeseen"],
)
def test_says_why_pip_failed_and_tries_again_the_next_time(machine, text, words):
    (machine.checkout / "pip-fails").write_text(text)

    fails(machine.setup(), words)
    machine.calls()
    fails(machine.setup(), words)
    assert machine.calls()


# A Python whose new environments have no pip: to install one takes five times as long as all that follows.
WITHOUT_PIP = """#!/bin/sh
case "$*" in
    "-m venv "*) shift 2; exec {python} -m venv --without-pip "$@" ;;
    *) exec {python} "$@" ;;
esac
"""


def test_recognises_what_a_real_pip_says_when_no_index_answers(machine, tmp_path):
    (machine.programs / "python3").unlink()
    given = machine.add("mine", WITHOUT_PIP.format(python=sys.executable))
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "pip").symlink_to(Path(importlib.util.find_spec("pip").origin).parent)
    silent = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull}
    silent["PYTHONPATH"] = str(tmp_path / "packages")

    fails(machine.setup(PYTHON=str(given), **silent), "No package index answers", "PIP_INDEX_URL")


def test_rejects_an_argument_it_does_not_know(machine):
    result = machine.setup("--tests")

    assert result.returncode == 2
    assert "'--tests'" in result.stderr
