"""Hashes of the code of implementations: what changes them, what does not, and hashes of former releases."""

import pytest

from kernels.dispatch import sources, tuned
from kernels.dispatch.registry import operation, operations
from kernels.dispatch.sources import code, former_sources, hash_of, valid
from kernels.dispatch.table import Entry, Table

BEFORE = '''
"""Twice."""
from one import two
from kernels.rowwise import rows

TILES = {"rows": (1, 2)}
FILES = ("kernels.rowwise.rows", "kernels.rowwise.softmax", *TILES)


def twice(x):
    """Twice x."""
    import torch

    if x is None:
        raise ValueError(f"x must be a tensor, but it is {x}.")
    assert x.numel(), "no numbers"
    return 2 * x  # twice


OPERATION = register(Operation("twice", twice))
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from one import two\n", "from three import two\nimport four\n"),
        ("    import torch\n", ""),
        ('"""Twice."""', '"""Two times."""'),
        ('"""Twice x."""', '"""Two times x."""'),
        ("  # twice", ""),
        ('f"x must be a tensor, but it is {x}."', '"No x."'),
        ('"no numbers"', '"empty"'),
        ('"kernels.rowwise.softmax"', '"kernels.rowwise.norms.softmax"'),
        ('Operation("twice", twice)', 'Operation("twice", twice, sizes=("rows",))'),
    ],
)
def test_text_and_places_of_files_change_no_hash(old, new):
    assert BEFORE.count(old) == 1
    assert code(BEFORE.replace(old, new)) == code(BEFORE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 * x", "3 * x"),
        ("x is None", "x is not None"),
        ("ValueError", "TypeError"),
        ("assert x.numel()", "assert x.dim()"),
        ('"rows": (1, 2)', '"rows": (1, 2, 4)'),
        ("def twice(x):", "@cache\ndef twice(x):"),
        ("def twice(x):", "def twice(x, y=1):"),
    ],
)
def test_code_changes_the_hash(old, new):
    assert BEFORE.count(old) == 1
    assert code(BEFORE.replace(old, new)) != code(BEFORE)


def test_a_hash_covers_every_module():
    one, other = hash_of("kernels.rowwise.rows"), hash_of("kernels.rowwise.rows", "kernels.rowwise.softmax")
    assert one != other
    assert len(one) == 16


def test_hashes_of_the_former_release_belong_to_the_code_of_now():
    now = operations()
    wrong = [
        f"{name} {way}"
        for name, ways in former_sources().items()
        for way, renewed in ways.items()
        if set(renewed.values()) != {now[name].implementations[way].source}
    ]
    assert not wrong, (
        f"The code of these implementations is not what it was when {sources.FORMER.name} was made: "
        f"{', '.join(wrong)}. If it computes something else, or is faster or slower, measurements of the former "
        "release do not hold any more: delete the entries of these implementations. Only if the code does "
        "the same, for example after a rename of a variable, replace the second hash of these entries by "
        "`Implementation.source`."
    )


def test_a_table_of_the_former_release_still_serves():
    found = operation("softmax")
    blocked = found.implementations["blocked"]
    problem = min(found.problems("cpu").values(), key=str)
    choice = found.default_choice(problem).of("blocked", {"rows": 8})
    for former in former_sources()["softmax"]["blocked"]:
        assert former != blocked.source
        assert valid(former, blocked)
        assert not valid(former, found.implementations["triton"])
        tuned.use("cpu", Table([Entry(problem, choice, 1.0, former)]))
        try:
            assert tuned.explain(found, problem).why == "exact"
        finally:
            tuned.use("cpu", None)
    assert not valid("0123456789abcdef", blocked)
