"""Cells side by side fit the width of the page, in several tables if they must."""

import pytest
from rich.cells import cell_len

from nas.cli.columns import arranged, print_columns, shared_out, wrapped

HEADS = [f"model_number_{i}:small" for i in range(7)]
ROWS = [
    ("kind", ["decoder"] * 7),
    ("body[0]", [f"residual norm=rms_norm [sliding_window_attention heads=4 window={16 + i}]" for i in range(7)]),
    ("body[1]", ["gru", *[""] * 6]),
]
SECTIONS = [("", ROWS), ("cost at length 1024", [("parameters", [66_400 + i for i in range(7)])])]


@pytest.mark.parametrize("width", [24, 30, 40, 60, 80, 120, 200, 400])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_no_line_is_longer_than_the_page(count, width, capsys):
    sections = [(title, [(name, cells[:count]) for name, cells in rows]) for title, rows in SECTIONS]
    print_columns(HEADS[:count], sections, width)
    lines = capsys.readouterr().out.splitlines()

    assert max(map(len, lines)) <= width
    text = "".join("".join(line.split()) for line in lines)
    assert all(str(66_400 + i) in text for i in range(count))


@pytest.mark.parametrize("width", [24, 40, 80])
def test_letters_that_take_two_columns_are_counted_as_two(width, capsys):
    heads = ["注意力機制" * 4, "前饋網絡" * 5]
    print_columns(heads, [("", [("層", ["高斯 混合", "x"])])], width)
    out = capsys.readouterr().out

    assert max(map(cell_len, out.splitlines())) <= width
    assert all(out.count(letter) >= sum(map(str.count, heads, [letter] * 2)) for letter in "".join(heads))
    assert "…" not in out


def test_as_few_tables_as_fit_have_as_many_columns_each():
    sizes = {width: [len(each.columns) for each in arranged(HEADS, SECTIONS, width)] for width in (30, 80, 110, 400)}
    assert sizes == {30: [1] * 7, 80: [3, 2, 2], 110: [4, 3], 400: [7]}
    assert [i for each in arranged(HEADS, SECTIONS, 80) for i in each.columns] == list(range(7))


def test_each_table_names_its_rows_and_marks_what_differs_between_any_two_columns(capsys):
    print_columns(["a", "b", "c"], [("", [("kind", ["x"] * 3), ("width", ["8" * 30, "8" * 30, "9" * 30])])], 50)
    tables = capsys.readouterr().out.split("\n\n")

    assert len(tables) == 3
    assert all("   kind " in table and "*  width" in table for table in tables)


def test_a_table_leaves_out_rows_that_are_empty_in_it(capsys):
    print_columns(HEADS, SECTIONS, 80)
    first, *others = capsys.readouterr().out.split(f"\n\n{' ' * 24}")
    assert "body[1]" in first and not any("body[1]" in table for table in others)


def test_narrow_columns_keep_their_width_and_the_others_share_the_rest():
    assert shared_out([["ab"], ["x" * 10], ["two words of it"]], 40) == [2, 10, 15]
    assert shared_out([["ab"], ["some more words"], ["two words of it"]], 20) == [2, 9, 9]
    assert sum(shared_out([["long_words" * 5], ["x" * 30]], 20)) <= 20


def test_words_are_broken_only_if_they_must():
    assert wrapped("one two three", 7) == "one two\nthree"
    assert wrapped("sliding_window=3", 9) == "sliding_\nwindow=3"
    assert wrapped("abcdefgh", 3) == "abc\ndef\ngh"
    assert wrapped("注意力", 4) == "注意\n力"
    assert wrapped("", 3) == ""
