"""nas space: what can be looked into without any study."""

import pytest

from searchspace.model.architecture import Architecture
from searchspace.space.space import Space


def test_a_space_is_shown_as_it_is_understood(files, nas):
    ended = nas("space", "space.yaml")

    assert Space.parse(ended.out).size() == Space.load("space.yaml").size()
    assert Space.parse(ended.out).text() == Space.load("space.yaml").text()
    assert "dropout: 0.0" in ended.out and "activation: gelu" in ended.out
    assert nas("space", "space.yaml", "--json").json()["space"] == ended.out


@pytest.mark.parametrize("file", ["space.yaml", "tiny.yaml"])
def test_the_size_of_a_space_and_of_the_space_in_a_search_file(file, files, nas):
    found = nas("space", file, "--json").json()
    assert nas("space", file).err.endswith("8 points\n")
    assert (found["points"], found["discrete"], found["continuous"]) == (8, 8, 0)


@pytest.mark.parametrize("by", ["choices", "architectures"])
def test_samples_are_architectures_of_the_space(by, files, nas):
    drawn = nas("space", "space.yaml", "-n", "3", "--by", by, "--json").json()
    again = nas("space", "space.yaml", "-n", "3", "--by", by, "--json").json()

    assert drawn == again
    for each in drawn:
        assert Space.load("space.yaml").contains(Architecture.parse(each["architecture"]))


def test_samples_as_text_are_documents(files, nas):
    documents = nas("space", "space.yaml", "-n", "2").out.split("---\n")

    assert [Architecture.parse(each).root.name for each in documents] == ["decoder", "decoder"]


def test_a_space_is_checked_against_its_constraints(files, nas):
    text = (files / "space.yaml").read_text()
    (files / "bound.yaml").write_text(text + "constraints: {parameters: {max: 8k}}\n")
    (files / "empty.yaml").write_text(text + "constraints: {parameters: {max: 10}}\n")
    half = nas("space", "bound.yaml", "--check", "50", "--json").json()
    none = nas("space", "empty.yaml", "--check", "5")

    assert nas("space", "space.yaml", "--check", "5").code == 0
    assert 0 < half["kept"] < 50
    assert half["kept"] + half["refused"]["parameters"] == 50
    assert none.code == 1
    assert "5 break 'parameters'" in none.out


def test_a_larger_space_is_told_from_a_smaller_one(files, nas):
    (files / "larger.yaml").write_text((files / "space.yaml").read_text().replace("[16, 32]", "[16, 32, 48]"))
    grown = nas("space", "larger.yaml", "--contains", "space.yaml")
    shrunk = nas("space", "space.yaml", "--contains", "larger.yaml", "--json").json()

    assert grown.out == "+ width: option 48\n"
    assert "Every point" in grown.err
    assert shrunk["removed"] == ["width: option 48"]
    assert not shrunk["larger"]


@pytest.mark.parametrize(
    ("file", "text"), [("gone.yaml", None), ("broken.yaml", "kind: [decoder\n"), ("list.yaml", "- 1")]
)
def test_a_file_without_a_space_is_bad_input(file, text, files, nas):
    if text is not None:
        (files / file).write_text(text)
    ended = nas("space", file)

    assert (ended.code, ended.out) == (2, "")
    assert file in ended.err
    assert "Traceback" not in ended.err


def test_a_space_that_leaves_its_vocabulary_to_a_task_is_read_with_bytes(tmp_path, nas, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open.yaml").write_text("kind: decoder\nwidth: !choice [8, 16]\nbody: feed_forward\n")
    ended = nas("space", "open.yaml", "-n", "1")
    assert ended.code == 0 and "vocabulary: 256" in ended.out
    assert "leaves vocabulary to a task; it is 256 here" in ended.err
    built = nas("show", "open.yaml")
    assert built.code == 2 and "open.yaml is a space, not an architecture" in built.err
