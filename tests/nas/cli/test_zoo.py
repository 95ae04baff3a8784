"""nas zoo: what is there, printed and trained."""

import pytest

from searchspace import zoo
from searchspace.model.architecture import Architecture


def test_the_zoo_is_listed_with_its_sizes(nas):
    rows = nas("zoo", "--json").json()

    assert [row["name"] for row in rows] == zoo.names()
    assert all(row["parameters"] > 0 and row["description"] and "tiny" in row["sizes"] for row in rows)
    assert "transformer_modern" in nas("zoo").out


def test_a_file_of_the_zoo_is_printed_as_it_is_and_other_sizes_as_what_they_come_to(nas):
    assert nas("zoo", "transformer_modern").out == zoo.text("transformer_modern")
    assert nas("zoo", "transformer_modern", "--json").json()["text"] == zoo.text("transformer_modern")
    tiny = Architecture.parse(nas("zoo", "transformer", "--size", "tiny").out)
    assert tiny == zoo.load("transformer", "tiny")


def test_an_architecture_of_the_zoo_is_trained_on_a_task_that_suits_it(nas):
    trained = nas("train", "transformer:tiny", "--steps", "2", "--length", "8")
    assert trained.code == 0 and "task: reversal" in trained.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["transformer_moder"], "Did you mean 'transformer_modern'?"),
        (["transformer", "--size", "tyni"], "transformer has no size 'tyni'. Did you mean 'tiny'?"),
    ],
)
def test_a_wrong_name_or_size_is_answered_with_the_nearest(arguments, said, nas):
    ended = nas("zoo", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_size_is_part_of_a_name_wherever_an_architecture_is_asked_for(nas):
    shown = nas("show", "transformer:tiny", "--length", "16", "--json").json()
    assert shown["hash"] == zoo.load("transformer", "tiny").hash
    assert "has no size 'tyni'. Did you mean 'tiny'?" in nas("show", "transformer:tyni").err
