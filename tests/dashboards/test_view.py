"""Tables are sorted by the column that an address names."""

import pytest

from dashboards.view import column_of


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("x", ("x", False)), ("-x", ("x", True)), ("-y", ("-y", False)), ("--y", ("-y", True)), ("", ("", False))],
)
def test_a_column_may_begin_with_the_sign_for_descending(asked, expected):
    assert column_of(asked, ("x", "-y")) == expected
