"""Hashes of code: what changes them, and what does not."""

import pytest

from kernels.dispatch.sources import code, hash_of

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


@primitive("twice", published=Published("as in the paper"))
class Twice:
    pass


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
        (', published=Published("as in the paper")', ""),
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
    assert hash_of("kernels.rowwise") not in (one, other), "a package stands for all of its modules"


def test_statements_may_be_in_any_file_and_in_any_order(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, texts in {"apart": ("x = 1\ny = 2\n", "z = 3\n"), "together": ("z = 3\ny = 2\n", "x = 1\n")}.items():
        (tmp_path / name).mkdir()
        for file, text in zip(("__init__.py", "more.py"), texts, strict=True):
            (tmp_path / name / file).write_text(text)
    assert hash_of("apart") == hash_of("together")
