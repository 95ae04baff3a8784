"""Is this machine ready? What is found is told, whatever breaks."""

import re
import tomllib

import pytest

from nas import doctor
from nas.store import open_store


@pytest.fixture
def quick(monkeypatch):
    """All checks but Ray, which takes seconds to start."""
    monkeypatch.delenv("NAS_STORAGE", raising=False)
    monkeypatch.setattr(doctor, "CHECKS", {name: each for name, each in doctor.CHECKS.items() if name != "ray"})


def found(storage=None):
    return {each.check: each for each in doctor.examine(storage)}


def test_a_machine_that_runs_the_tests_is_ready(quick):
    findings = found()

    assert {each.check for each in findings.values() if not each.ok} == set()
    assert "torch" in findings["packages"].found
    assert findings["python"].as_row()["state"] == "ok"


def test_every_extra_is_listed_with_its_packages(quick, root):
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {
        extra: tuple(re.split(r"[\[>=]", need)[0] for need in needs)
        for extra, needs in extras.items()
        if extra != "test"
    }
    assert {extra: packages for extra, (_, packages) in doctor.EXTRAS.items()} == needed
    assert "onnxruntime" in found()["extras"].found


def test_an_extra_that_is_not_installed_says_what_it_is_for(quick, monkeypatch):
    monkeypatch.setattr(doctor, "EXTRAS", {"games": ("play", ("torch", "nothing-of-this-name"))})
    assert found()["extras"].found.endswith(", no nothing-of-this-name (play, tessera-nas[games])")


def test_a_database_that_is_there_is_told_with_its_studies(quick, tmp_path):
    with open_store(tmp_path / "here.db") as store:
        store.create_study("mine", {}, "space", 0, [{"name": "loss", "direction": "minimize"}])

    assert found(str(tmp_path / "here.db"))["database"].found.endswith("holds mine")


def test_a_database_that_is_not_there_is_a_problem_and_is_not_made(quick, tmp_path):
    finding = found(str(tmp_path / "gone.db"))["database"]

    assert not finding.ok
    assert not (tmp_path / "gone.db").exists()


def test_a_check_that_breaks_is_a_finding(quick, monkeypatch):
    monkeypatch.setitem(doctor.CHECKS, "disk", lambda: 1 / 0)

    assert found()["disk"].as_row() == {
        "check": "disk", "state": "PROBLEM", "found": "ZeroDivisionError: division by zero",
    }  # fmt: skip


def test_a_password_in_the_url_of_a_file_that_is_missing_is_not_shown(quick, tmp_path):
    finding = found(f"sqlite:///{tmp_path}/none.db?password=s3cret")["database"]
    assert "takes no options, but got password" in finding.found and "s3cret" not in finding.found
