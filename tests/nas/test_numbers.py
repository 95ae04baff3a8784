"""Trials of the search and of the finals have numbers of their own, and names that people can type."""

import pytest

from nas.numbers import FIRST_FINAL, address_of, final_of, name_of, number_of


@pytest.mark.parametrize(
    ("number", "final", "name", "address"),
    [
        (0, None, "trial 0", "0"),
        (17, None, "trial 17", "17"),
        (FIRST_FINAL, 1, "final 1", "final-1"),
        (FIRST_FINAL + 11, 12, "final 12", "final-12"),
    ],
)
def test_a_number_has_a_name_and_an_address_that_leads_back_to_it(number, final, name, address):
    assert final_of(number) == final
    assert (name_of(number), address_of(number)) == (name, address)
    assert number_of(address) == number


def test_a_number_that_no_column_holds_is_that_of_no_final():
    assert number_of("99999999999") == 99999999999
    assert final_of(2**31) is None
    assert name_of(2**31) == "trial 2147483648"


@pytest.mark.parametrize(
    "written", ["", "final", "final-0", "final-", "final-x", "-1", "1.5", "١", "9" * 12, "final 2"]
)
def test_anything_else_is_no_address(written):
    assert number_of(written) is None


def test_every_address_has_a_number_that_a_database_can_compare():
    assert FIRST_FINAL + 10**9 < 2**31
