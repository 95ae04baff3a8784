"""A configuration serves only if it writes what the reference writes, whatever the arguments are made of."""

from dataclasses import dataclass

import pytest
import torch

from tuner.triton import copies, output_check
from tuner.triton.case import Launch
from tuner.triton.copies import Buffers, CannotCheck, NothingWritten, tensors
from tuner.triton.output_check import OutputCheck

triton = pytest.importorskip("triton")


class Kernel:
    """A kernel in Python: the configuration names the function to run."""

    arg_names = ("x", "y")

    def __init__(self, **functions):
        self.functions = functions

    def run(self, *args, grid, warmup, which, **kwargs):
        self.functions[which](*args)


def checked(function, *args, reference=None, **options):
    """What is wrong with `function`, compared with `reference`."""
    kernel = Kernel(right=reference or right, other=function)
    launch = Launch(kernel, args, {}, (1,), dict(zip(kernel.arg_names, args)))
    found = OutputCheck(launch, **options)
    assert found.refer_to(config("right")) is None
    return found.differs(config("other"))


def config(which):
    return triton.Config({"which": which})


def right(x, y):
    y.copy_(torch.softmax(x.float(), -1))


def omits(x, y):
    """A sixteenth of the columns is missing."""
    width = x.shape[-1] * 15 // 16
    y.zero_()
    y[..., :width] = torch.softmax(x[..., :width].float(), -1)


def arguments(dtype=torch.float32, rows=16, columns=64, holds=0.0):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator).to(dtype)
    return x, torch.full((rows, columns), holds).to(dtype)


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("extreme", [-1e9, 1e30, -torch.finfo(torch.float32).max / 2])
@pytest.mark.parametrize("share", [0.001, 0.6])
def test_a_few_huge_values_hide_no_wrong_result(extreme, share):
    def masked(x, y):
        y.copy_(torch.where(torch.arange(x.numel()).reshape(x.shape) < share * x.numel(), extreme, x))

    def other(factor):
        return lambda x, y: (masked(x, y), y[-1].mul_(factor))

    assert checked(other(1 + 1e-7), *arguments(), reference=masked) is None
    assert "differs at 64 of 1024 places" in checked(other(2), *arguments(), reference=masked)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "fault",
    [
        lambda x, y: y.copy_(torch.softmax(x.float(), -1) * 1.25),
        omits,
        lambda x, y: y.zero_(),
        lambda x, y: None,
        lambda x, y: y[:-1].copy_(torch.softmax(x.float(), -1)[:-1]),
    ],
    ids=["scaled", "omits columns", "zeros", "writes nothing", "omits the last row"],
)
def test_a_wrong_result_is_found_in_every_dtype(dtype, fault):
    assert checked(fault, *arguments(dtype)) is not None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_another_order_of_sums_is_no_error(dtype):
    def other(x, y):
        wide = x.float().exp().flip(-1)
        y.copy_((wide / wide.cumsum(-1)[..., -1:]).flip(-1))

    assert checked(other, *arguments(dtype)) is None


def test_an_output_that_already_holds_the_result_is_written_again():
    x, y = arguments()
    right(x, y)

    assert "y differs" in checked(lambda x, y: None, x, y)


def test_a_trial_run_on_zeros_is_checked_on_random_numbers():
    zeros = torch.zeros(4, 8)

    assert checked(lambda x, y: y.copy_(3 * x), zeros, zeros.clone(), reference=lambda x, y: y.copy_(2 * x))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.bool, torch.uint8], ids=str)
def test_a_sum_that_keeps_what_was_there_is_found_for_whole_numbers(dtype):
    x = torch.arange(32).reshape(4, 8).to(dtype)

    wrong = checked(lambda x, y: y.copy_(x ^ y), x, torch.zeros_like(x), reference=lambda x, y: y.copy_(x))
    assert "y differs" in wrong
    assert checked(lambda x, y: y.copy_(x), x, torch.zeros_like(x), reference=lambda x, y: y.copy_(x)) is None
    assert checked(lambda x, y: y.add_(x), x, torch.zeros_like(x), reference=lambda x, y: y.add_(x)) is None


@pytest.mark.parametrize("tensor", [torch.zeros(4, 8, dtype=torch.int32), torch.empty(0)], ids=["zeros", "empty"])
def test_a_call_that_changes_nothing_cannot_be_checked(tensor):
    with pytest.raises(NothingWritten, match="a wrong result would not show"):
        checked(lambda x, y: None, tensor, tensor.clone(), reference=lambda x, y: y.copy_(x))


@dataclass
class Pair:
    one: torch.Tensor
    other: torch.Tensor


@pytest.mark.parametrize(
    ("hold", "get"),
    [
        (lambda y: (3, y), lambda held: held[1]),
        (lambda y: {"y": [y]}, lambda held: held["y"][0]),
        (lambda y: Pair(y, y), lambda held: held.one),
        (
            lambda y: triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(y, [4, 16]),
            lambda held: held.base,
        ),
    ],
    ids=["tuple", "mapping", "dataclass", "TMA descriptor"],
)
def test_tensors_inside_other_objects_are_saved_restored_and_compared(hold, get):
    import triton.tools.tensor_descriptor  # noqa: F401

    x, y = arguments()
    held = hold(y)
    add = lambda x, held: get(held).add_(x)  # noqa: E731

    assert checked(add, x, held, reference=add) is None, "what is added up starts from the same numbers each time"
    assert "differs" in checked(lambda x, held: get(held).add_(2 * x), x, held, reference=add)
    kept = Buffers({"x": x, "y": held}, (), (), whole=True)
    before = y.clone()
    y.add_(1)
    kept.reset()
    assert torch.equal(y, before)


def test_memory_that_cannot_be_found_is_not_tuned():
    class Pointer:
        def data_ptr(self):
            return 4096

    with pytest.raises(CannotCheck, match="y is a Pointer"):
        list(tensors({"y": Pointer()}))
    with pytest.raises(CannotCheck):
        checked(right, torch.ones(2), Pointer())


@pytest.mark.parametrize("where", [-1, 64 * 16], ids=["before", "behind"])
def test_a_write_outside_of_a_tensor_is_found(where):
    def outside(x, y):
        right(x, y)
        torch.as_strided(y, (1,), (1,), y.storage_offset() + where).fill_(1.0)

    x, y = arguments()
    assert "writes outside of y" in checked(outside, x, y)


def test_a_read_outside_of_a_tensor_is_found():
    def outside(x, y):
        behind = torch.as_strided(x, (16, 1), (0, 0), x.storage_offset() + x.numel())
        right(x, y)
        y.add_(behind * 0)

    assert "differs" in checked(outside, *arguments())


def test_races_are_found_if_a_kernel_is_declared_deterministic():
    calls = []

    def race(x, y):
        calls.append(0)
        right(x, y)
        y[0, 0] += 1e-8 * len(calls)

    assert checked(race, *arguments()) is None
    assert "between two runs" in checked(race, *arguments(), deterministic=True)


def test_a_change_of_the_random_state_is_found():
    def draws(x, y):
        torch.rand(1)
        right(x, y)

    assert "random numbers" in checked(draws, *arguments())


def test_results_that_are_cached_by_address_are_found():
    known = {}

    def cached(x, y):
        key = y.data_ptr()
        if key not in known:
            known[key] = x * 2
        y.copy_(known[key])

    zeros = torch.zeros(4, 8)
    assert checked(cached, zeros, zeros.clone(), reference=lambda x, y: y.copy_(2 * x)) is not None


def test_short_memory_takes_the_guards_first_then_the_check(monkeypatch):
    x, y = arguments()
    needed = x.nbytes
    monkeypatch.setattr(copies, "available", lambda device: 3 * needed)
    assert "differs" in checked(lambda x, y: None, x, y)
    monkeypatch.setattr(copies, "available", lambda device: needed)
    with pytest.raises(CannotCheck, match="no memory for a copy of x"):
        checked(right, x, y)


def test_large_tensors_are_compared_in_blocks(monkeypatch):
    from tuner.measure import tolerance

    monkeypatch.setattr(tolerance, "BLOCK", 100)
    x, y = arguments()

    assert checked(right, x, y) is None
    assert "differs at 1 of 1024 places" in checked(lambda x, y: (right(x, y), y[15, 63].fill_(1.0)), x, y)


def test_whole_numbers_keep_their_values():
    places = torch.zeros(4, dtype=torch.int32)

    def gather(x, y):
        assert int(x.max()) == 0
        y.copy_(x + 1)

    assert checked(gather, places, places.clone(), reference=gather) is None
    assert "y differs at 4 of 4" in checked(lambda x, y: y.copy_(x + 2), places, places.clone(), reference=gather)
    assert output_check.GUARD % 512 == 0
