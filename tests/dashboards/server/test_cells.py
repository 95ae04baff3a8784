"""Tables: the points of a column of numbers are below one another, units say what is counted, and columns sort."""

from __future__ import annotations

import pytest

from dashboards.server.cells import cell, scales
from dashboards.view import Column, Table, column_of


def written(values, kind="number"):
    column = Column("a", "A", kind)
    scaled = scales(Table(columns=[column], rows=[{"a": value} for value in values]))
    return [cell(value, column, scaled["a"]) for value in values]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5242880.0, 11e6, None, 1.57e6], ["5.24M", "11.00M", "", "1.57M"]),
        ([203_100.5, 58_200.25], ["203.1k", "58.2k"]),
        ([4.1253, 10.5, 3.64], ["4.13", "10.50", "3.64"]),
        ([0.41004, -0.00909], ["0.4100", "-0.0091"]),
        ([66432.0, 20864.0], ["66,432", "20,864"]),  # whole numbers are exact
        ([2.5e9, 3e3], ["2.5G", "3,000"]),  # too far apart for one unit
        ([float("nan"), 0.5], ["nan", "0.5"]),
    ],
)
def test_a_column_has_one_unit_and_as_many_decimals(values, expected):
    assert written(values) == expected


def test_short_times_are_not_zero():
    assert written([0.34, 4.0, 44.0, 600.0], "seconds") == ["0.3 s", "4.0 s", "44 s", "10 min"]


def test_the_name_of_a_quantity_is_that_of_its_axis():
    assert written(["bits_per_byte"], "quantity") == ["Bits per byte"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("x", ("x", False)), ("-x", ("x", True)), ("-y", ("-y", False)), ("--y", ("-y", True)), ("", ("", False))],
)
def test_a_column_may_begin_with_the_sign_for_descending(asked, expected):
    assert column_of(asked, ("x", "-y")) == expected
