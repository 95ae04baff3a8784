"""The hash of a kernel's source: what changes the result changes it, nothing else does."""

import importlib.util
import itertools

import pytest

from tuner.triton.source import function_of, source

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
    ('"""Adds."""', '"""Sums."""'),
    ("OTHER = 3", "OTHER = 4"),
    ("import triton", "\n\nimport triton"),
]
OTHERS = [("WIDTH = tl.constexpr(8)", "WIDTH = tl.constexpr(9)"), ("x + 1", "x + 2"), ("+ WIDTH", "- WIDTH")]
count = itertools.count()


def loaded(tmp_path, text):
    path = tmp_path / f"somebody{next(count)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hashed(tmp_path, text):
    return source(loaded(tmp_path, text).kernel)


@pytest.mark.parametrize("change", SAME, ids=str)
def test_what_computes_the_same_has_the_same_hash(tmp_path, change):
    assert hashed(tmp_path, TEXT) == hashed(tmp_path, TEXT.replace(*change))


@pytest.mark.parametrize("change", OTHERS, ids=str)
def test_what_computes_something_else_has_another(tmp_path, change):
    assert hashed(tmp_path, TEXT) != hashed(tmp_path, TEXT.replace(*change))


MORE = """import torch
import triton
from triton import language as tl
from triton.language import exp2 as power
DTYPE = tl.constexpr(tl.float32)
SHAPE = (16, tl.float32)

@triton.jit
def one(x):
    return x + 1

@triton.jit
def two(x):
    return x + 2

STEPS = (one,)
called = one

class Mode:
    FAST = 1

@triton.heuristics({"EVEN": lambda args: args["size"] % 8 == 0})
@triton.jit(do_not_specialize=["size"])
def kernel(x_ptr, size, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK)).to(DTYPE)
    tl.store(x_ptr + tl.arange(0, BLOCK), called(STEPS[0](power(x))) + SHAPE[0] + Mode.FAST)
"""


@pytest.mark.parametrize(
    "change",
    [
        ("tl.constexpr(tl.float32)", "tl.constexpr(tl.float16)"),
        ("(16, tl.float32)", "(32, tl.float32)"),
        ("(16, tl.float32)", "(16, tl.float16)"),
        ("(one,)", "(two,)"),
        ("called = one", "called = two"),
        ("import exp2 as power", "import exp as power"),
        ("% 8", "% 16"),
        ('do_not_specialize=["size"]', 'do_not_specialize=["x_ptr"]'),
        ("(do_not_specialize=", "(noinline=True, do_not_specialize="),
        ("FAST = 1", "FAST = 2"),
    ],
    ids=str,
)
def test_dtypes_tuples_aliases_heuristics_and_options_count(tmp_path, change):
    assert change[0] in MORE
    assert hashed(tmp_path, MORE) != hashed(tmp_path, MORE.replace(*change))
    assert hashed(tmp_path, MORE) == hashed(tmp_path, MORE.replace("import torch\n", ""))


def test_functions_that_a_call_gives_count(tmp_path):
    def hashes(text):
        module = loaded(tmp_path, text)
        one, two = module.one, module.two
        given = ([], [one], [two], [lambda x: x], [one, two], [two, one])
        return [source(module.kernel, arguments=each) for each in given]

    before, after = hashes(MORE), hashes(MORE.replace("x + 2", "x + 3"))
    assert len(set(before)) == 6, "also which parameter gets which function"
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, False, True, False, False]


HELPERS = """import functools
import triton
from triton import language as tl
TABLE = {64: 1, 128: 2}
DTYPE = tl.float32

def pick(size, more=1):
    return size + more

def steps(by, args):
    return by * TABLE[64]

class Rule:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, args):
        return args["size"] < self.limit

@triton.heuristics({
    "A": lambda args, *, least=3: functools.cache(pick)(args["size"]) + DTYPE.primitive_bitwidth,
    "B": functools.partial(steps, 3),
    "C": Rule(7),
})
@triton.jit
def kernel(x_ptr, size, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    tl.store(x_ptr, A + B + C)

def hook(args):
    args["size"] = pick(args["size"])
"""


@pytest.mark.parametrize(
    "change",
    [
        *(("size + more", "size - more"), ("more=1", "more=2"), ("64: 1", "64: 2"), ("by * ", "by + ")),
        *(("steps, 3", "steps, 4"), ("Rule(7)", "Rule(8)"), ('"] < self', '"] > self'), ("least=3", "least=4")),
        ("DTYPE = tl.float32", "DTYPE = tl.float16"),
    ],
    ids=str,
)
def test_what_heuristics_call_and_read_counts(tmp_path, change):
    assert change[0] in HELPERS
    assert hashed(tmp_path, HELPERS) != hashed(tmp_path, HELPERS.replace(*change))
    assert hashed(tmp_path, HELPERS) == hashed(tmp_path, HELPERS)


def test_what_hooks_call_counts(tmp_path):
    def hash_with_hook(text):
        return source(loaded(tmp_path, TEXT).kernel, [loaded(tmp_path, text).hook])

    assert hash_with_hook(HELPERS) == hash_with_hook(HELPERS.replace("Rule(7)", "Rule(8)"))
    assert hash_with_hook(HELPERS) != hash_with_hook(HELPERS.replace("size + more", "size - more"))


def test_the_order_of_configurations_does_not_count(tmp_path):
    module = loaded(tmp_path, MORE)
    one, two = module.one, module.two

    assert source(module.kernel, [one, two]) == source(module.kernel, [two, one, two]) != source(module.kernel, [two])


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match=r"a kernel is a function under @triton.jit, but got int"):
        function_of(3)
