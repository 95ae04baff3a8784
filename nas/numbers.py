"""The numbers of trials, and what people call them: trial 7, or final 2.

The trials of the search and those of the finals are numbered separately. A final has the number FIRST_FINAL + its
place among the finals.
"""

from __future__ import annotations

import re

FIRST_FINAL = 2**30  # above the numbers of any search, and within the 32 bits of a column
LAST = 2**31 - 1  # that a column holds
_ADDRESS = re.compile(r"(?P<number>[0-9]{1,11})|final-(?P<final>[1-9][0-9]{0,8})")


def final_of(number: int) -> int | None:
    """The number of a trial among the finals, from 1; None for a trial of the search."""
    return number - FIRST_FINAL + 1 if FIRST_FINAL <= number <= LAST else None


def name_of(number: int) -> str:
    """What people call a trial: trial 7, or final 2."""
    final = final_of(number)
    return f"trial {number}" if final is None else f"final {final}"


def address_of(number: int) -> str:
    """As `name_of`, as it is written after STUDY: and in the addresses of pages: 7, or final-2."""
    final = final_of(number)
    return str(number) if final is None else f"final-{final}"


def number_of(address: str) -> int | None:
    """The number of the trial with this address, see `address_of`; None if it is not an address.

    It may be above LAST, which no trial has.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return None
    return int(found["number"]) if found["final"] is None else FIRST_FINAL + int(found["final"]) - 1
