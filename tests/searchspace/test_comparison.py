"""The table of blocks and what was published: complete, equal to the page in docs, and its options exist."""

from pathlib import Path

import pytest
import yaml

from searchspace import comparison
from searchspace.contract import Given
from searchspace.language import schema
from searchspace.reference import entries
from searchspace.registry import configure
from searchspace.tree import Block

EVERY = entries()
COMPARED = [entry for entry in EVERY if entry.kind.published]
SURROUNDINGS = [Given(dim=24, causal=causal, memory=memory) for memory in (False, True) for causal in (True, False)]


def test_the_page_is_up_to_date():
    page = comparison.page()
    assert Path("docs/published.md").read_text() == page, "run: python -m searchspace.comparison > docs/published.md"


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: f"{entry.kind.role}-{entry.kind.name}")
def test_every_block_with_a_paper_says_how_it_differs(entry):
    message = f"register what differs: @primitive({entry.kind.name!r}, ..., published=Published(...))"
    assert entry.kind.published or not entry.papers, message


def test_every_block_has_a_row():
    rows = [line for line in comparison.page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(EVERY)
    assert all(row.count(" | ") >= 3 for row in rows)


@pytest.mark.parametrize("entry", COMPARED, ids=lambda entry: f"{entry.kind.role}-{entry.kind.name}")
def test_the_options_of_a_difference_are_options_of_the_block(entry):
    published = entry.kind.published
    assert published.code or not published.released, "name the code that differs"
    for text, options in {**published.paper, **published.released}.items():
        assert text and not text.endswith(".")
        fields = yaml.safe_load("{" + options + "}")
        assert fields.keys() <= entry.kind.fields.keys(), options
        for name, value in fields.items():
            schema.accepts(entry.kind.fields[name].type).read(value)
        if not any(field.role for field in entry.kind.fields.values()):
            assert any(fits(entry.kind, fields, given) for given in SURROUNDINGS), options


def fits(kind, fields, given):
    try:
        configure(schema.complete(Block(kind.name, fields)), given, kind.role)
    except ValueError:
        return False
    return True
