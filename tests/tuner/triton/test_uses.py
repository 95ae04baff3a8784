"""An output of whole numbers that the kernel never reads is checked even if it holds the right numbers already."""

import pytest
import torch

from tuner.triton.case import Launch
from tuner.triton.output_check import OutputCheck
from tuner.triton.uses import only

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def counts(x_ptr, y_ptr, n_ptr, aside_ptr, size, BLOCK: tl.constexpr, SKIPS: tl.constexpr = ""):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    x = tl.load(x_ptr + places, mask=inside)
    tl.store(y_ptr + places, x * 2.0, mask=inside)
    there = n_ptr + places
    if SKIPS != "n_ptr":
        tl.store(there, (x * 3.0).to(n_ptr.dtype.element_ty), mask=inside)
    if SKIPS != "aside_ptr":
        tl.store(aside_ptr - 0 + places, x > 0.5, mask=inside)


@triton.jit
def helped(p, q):
    tl.store(p, tl.load(q))


@triton.jit
def reads(a, b, c, d, e, f, g, h, i, unused, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(a + places, tl.load(a + places))
    tl.store(b + tl.load(b), 1)
    both = c if N > 4 else d
    tl.store(both, 1)
    tl.atomic_add(e, 1)
    helped(f, q=i + places)
    p = g
    q = p + places
    tl.store(q, tl.load(p))
    tl.store(h + places, 1, mask=h + places != 0)


@pytest.mark.parametrize(
    ("kernel", "written", "read"),
    [
        (counts, {"y_ptr", "n_ptr", "aside_ptr"}, {"x_ptr"}),
        (reads, {"f"}, {"i"}),
        (triton.heuristics({"BLOCK": lambda arguments: 16})(counts), {"y_ptr", "n_ptr", "aside_ptr"}, {"x_ptr"}),
        *((other, set(), set()) for other in (lambda x: x, max, object(), eval("lambda x: x"))),
    ],
    ids=["plain", "other uses", "under heuristics", "lambda", "of C", "object", "without a file"],
)
def test_an_argument_counts_only_if_each_use_of_it_is_the_address_of_one_kind_of_access(kernel, written, read):
    assert only(kernel, "store") == written
    assert only(kernel, "load") == read


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("size", [16, 21])
def test_an_output_that_is_left_out_is_found_though_it_holds_the_right_numbers(dtype, size):
    x, y = torch.arange(float(size)) % 2, torch.zeros(size)
    n, aside = (3 * x).to(dtype), x > 0.5
    arguments = {"x_ptr": x, "y_ptr": y, "n_ptr": n, "aside_ptr": aside, "size": size}
    check = OutputCheck(Launch(counts, tuple(arguments.values()), {}, (2,), arguments))
    assert check.refer_to(triton.Config({"BLOCK": 16})) is None
    assert check.written == ["aside_ptr", "n_ptr", "y_ptr"]

    assert check.differs(triton.Config({"BLOCK": 32})) is None
    for name in ("n_ptr", "aside_ptr"):
        left_out = check.differs(triton.Config({"BLOCK": 16, "SKIPS": name}))
        assert left_out.startswith(f"{name} differs at {size} of {size} places")


def test_an_output_that_holds_only_some_right_numbers_is_checked_at_all_places():
    @triton.jit
    def ascending(n_ptr, BLOCK: tl.constexpr, FIRST: tl.constexpr = 0):
        places = tl.arange(0, BLOCK)
        tl.store(n_ptr + places, places, mask=places >= FIRST)

    arguments = {"n_ptr": torch.cat([torch.arange(8), torch.full([8], -1)])}  # of an earlier call with fewer rows
    check = OutputCheck(Launch(ascending, tuple(arguments.values()), {}, (1,), arguments))
    assert check.refer_to(triton.Config({"BLOCK": 16})) is None
    assert check.differs(triton.Config({"BLOCK": 16, "FIRST": 0})) is None
    assert check.differs(triton.Config({"BLOCK": 16, "FIRST": 8})).startswith("n_ptr differs at 8 of 16 places")


def test_whole_numbers_that_share_their_memory_with_an_input_keep_their_values():
    both = torch.arange(32, dtype=torch.int32)
    x, n = both[:16], both[16:]
    arguments = {"x_ptr": x, "y_ptr": torch.zeros(16), "n_ptr": n, "aside_ptr": torch.zeros(16) > 1, "size": 16}
    check = OutputCheck(Launch(counts, tuple(arguments.values()), {}, (1,), arguments))
    assert check.refer_to(triton.Config({"BLOCK": 16})) is None
    assert check.states[1]["aside_ptr"].all(), "inverted"
    assert torch.equal(check.states[1]["x_ptr"], check.expected[0]["x_ptr"]), "as the reference left them"
