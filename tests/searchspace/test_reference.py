"""The reference of blocks: complete, from the blocks' own code, and equal to the page in docs."""

from pathlib import Path

import pytest

from searchspace import reference
from searchspace.errors import SpaceError
from searchspace.reference import entries

EVERY = entries()


def test_the_page_is_up_to_date():
    page = reference.page()
    assert Path("docs/blocks.md").read_text() == page, "run: python -m searchspace.reference > docs/blocks.md"


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: f"{entry.kind.role}-{entry.kind.name}")
def test_every_block_is_described(entry):
    assert len(entry.summary) > 10 and entry.summary.endswith(".")
    assert entry.formula
    for option in entry.options:
        assert option.meaning, f"{option.name} needs a meaning in {entry.kind.config.__name__}: `{option.name}`: ..."
        assert option.type
    assert entry.papers or entry.kind.name in ("none", "sequence", "decoder")


def test_what_is_known_of_one_block():
    (entry,) = entries("sliding_window_attention")
    found = entry.as_dict()
    assert found["role"] == "block" and found["family"] == "sparse_attention"
    assert found["papers"] == [
        {"citation": 'Beltagy et al. 2020, "Longformer"', "url": "https://arxiv.org/abs/2004.05150"}
    ]
    options = {option["name"]: option for option in found["options"]}
    assert options["window"]["default"] == "64" and options["window"]["type"] == "a whole number"
    assert options["key_value_heads"]["default"] == "null"
    assert found["capabilities"]["causal"] and not found["capabilities"]["cross"]
    assert "growing as T;" in found["cost"] and "state, the same for every length" in found["cost"]
    assert "window" in reference.text(entry) and "default 64" in reference.text(entry)


def test_costs_say_how_they_grow():
    costs = {entry.kind.name: entry.cost for entry in EVERY if entry.kind.role == "block"}
    assert "FLOPs, growing as T^2" in costs["attention"] and "of state, growing as T" in costs["attention"]
    assert "FLOPs, growing as T;" in costs["linear_attention"]
    assert costs["residual"] == ""


def test_a_required_option_says_so():
    assert "required" in reference.text(entries("repeat")[0])


def test_roles_and_families_filter():
    assert {entry.kind.role for entry in entries("none")} == {"norm", "position"}
    assert [entry.kind.role for entry in entries("none", role="norm")] == ["norm"]
    assert {entry.kind.name for entry in entries(family="recurrence")} == {"attending_gru", "gru", "lstm"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "atention"}, "Did you mean 'attention'"),
        ({"role": "blok"}, "No role is called 'blok'. Did you mean 'block'"),
        ({"family": "recurence"}, "Did you mean 'recurrence'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(arguments, message):
    with pytest.raises(SpaceError, match=message.replace(".", r"\.")):
        entries(**arguments)
