"""Search files and spaces that earlier code read: every key and spelling is still read, and means the same."""

import json
import re
from pathlib import Path

import pytest

KEPT = Path(__file__).parent
FILES, SPACES = (json.loads((KEPT / "search" / f"{name}.json").read_text()) for name in ("kept", "spaces"))


@pytest.fixture
def folder(tmp_path, monkeypatch, kept):
    monkeypatch.chdir(tmp_path)
    kept.searchable(tmp_path)
    return tmp_path


def _with_unordered_numbers(path):
    """The file with the option of Optuna's strategy that keeps what earlier code proposed."""
    text = path.read_text()
    text = text.replace("strategy: optuna\n", "strategy: {optuna: {numbers: options}}\n")
    changed = path.with_name(f"unordered-{path.name}")
    changed.write_text(text.replace("{optuna: {sampler", "{optuna: {numbers: options, sampler"))
    return changed


@pytest.mark.parametrize("name", FILES)
def test_a_search_file_means_what_it_meant(name, folder, kept):
    """What a study keeps of it, and the architectures that are proposed first.

    A file that names no strategy has the default of today, which proposes other architectures.
    """
    old, now = FILES[name], kept.entered(folder / name, folder)
    if not re.search(r"(?m)^strategy:", (folder / name).read_text()):
        assert now["config"]["strategy"]["name"] == "model"
        old = {**old, "config": {**old["config"], "strategy": now["config"]["strategy"]}, "asked": now["asked"]}
    if (
        now["config"]["strategy"]["name"] == "optuna"
    ):  # a choice of numbers is ordered now, unless the file says otherwise
        now["asked"] = kept.entered(_with_unordered_numbers(folder / name), folder)["asked"]
    changes = kept.differences(old, now)

    assert not changes, "\n".join(changes)


@pytest.mark.parametrize("name", SPACES)
def test_a_space_has_the_points_that_it_had(name, kept):
    old, now = SPACES[name], kept.spaced(KEPT / "search" / "spaces" / name)
    same = [pair for pair in zip(old["drawn"], now["drawn"], strict=True) if not pair[0]["renamed"]]

    assert old["size"] == now["size"]
    assert [then["hash"] for then, _ in same] == [each["hash"] for _, each in same]
