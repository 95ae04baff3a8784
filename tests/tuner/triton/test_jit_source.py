"""The hash of a kernel's source: what changes the result changes it, nothing else does."""

import importlib.util
import itertools

import pytest

from tuner.triton.jit_source import function_of, source

pytest.importorskip("triton")

TEXT = '''import triton
from triton import language as tl
WIDTH = tl.constexpr(8)
OTHER = 3

@triton.jit
def inner(x):
    return x + 1

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    """Adds."""
    # to each
    tl.store(x_ptr + tl.arange(0, BLOCK), inner(tl.load(x_ptr + tl.arange(0, BLOCK))) + WIDTH)
'''
SAME = [
    ("# to each", "# to all"),
    ('"""Adds."""\n', "\n"),
    ("OTHER = 3", "OTHER = 4"),
    ("import triton", "\n\nimport triton"),
]
OTHERS = [("WIDTH = tl.constexpr(8)", "WIDTH = tl.constexpr(9)"), ("x + 1", "x + 2"), ("+ WIDTH", "- WIDTH")]
count = itertools.count()


def hashed(tmp_path, text):
    path = tmp_path / f"somebody{next(count)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return source(function_of(module.kernel))


@pytest.mark.parametrize("change", SAME, ids=str)
def test_what_computes_the_same_has_the_same_hash(tmp_path, change):
    assert hashed(tmp_path, TEXT) == hashed(tmp_path, TEXT.replace(*change))


@pytest.mark.parametrize("change", OTHERS, ids=str)
def test_what_computes_something_else_has_another(tmp_path, change):
    assert hashed(tmp_path, TEXT) != hashed(tmp_path, TEXT.replace(*change))


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match=r"a kernel is a function under @triton.jit, but got int"):
        function_of(3)
