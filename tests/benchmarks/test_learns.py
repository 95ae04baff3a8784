"""The benchmark of what is learned has a row for all of the zoo, and controls that differ from their rows."""

import pytest

from benchmarks import learns
from nas import tasks
from searchspace import zoo
from searchspace.model.build import build


def test_every_architecture_of_the_zoo_has_a_row():
    rows = [name for name, *_ in (*learns.decoders(), *learns.others())]
    assert sorted(set(rows) - learns.CONTROLS.keys()) == zoo.names()
    assert len(rows) == len(set(rows))


def test_expectations_are_columns_and_of_rows_that_there_are():
    names = {name for name, *_ in learns.decoders()}
    assert learns.EXPECTED.keys() | learns.CONTROLS.keys() == names
    for _, _, expected in learns.decoders():
        assert set(expected) <= learns.COLUMNS.keys()


@pytest.mark.parametrize("name", learns.CONTROLS)
def test_a_control_differs_from_its_row_and_builds(name):
    control = learns.CONTROLS[name]
    assert control.architecture() != zoo.load(control.row, "tiny")
    build(control.architecture())


@pytest.mark.parametrize("title", learns.COLUMNS)
def test_a_column_fits_the_tiny_sizes_and_knows_its_chance(title):
    column = learns.COLUMNS[title]
    task = tasks.load(column.spec)
    assert task.length <= 128
    assert column.chance == 1 / task.symbols


def test_a_row_says_where_it_differs_from_what_is_expected(monkeypatch):
    monkeypatch.setattr(learns, "accuracy", lambda architecture, column, quick: 1.0 if "copy" in column.spec else 0.5)
    row = learns.decoder_row("gru", zoo.load("gru", "tiny"), ("recall",), quick=True)
    assert row["expected"] == "recall"
    assert row["differs"] == "copy, recall"


def test_the_text_rows_are_trained_on_what_suits_them():
    row = learns.text_row("vit", zoo.load("vit", "tiny"), quick=True)
    assert row["task"] == "digits"
    assert 0 <= row["right"] <= 1
