"""What gives not what the definition gives is never timed."""

import functools
from dataclasses import replace

import pytest
import torch

from kernels.dispatch import registry
from kernels.dispatch.registry import Operation, Problem
from tuner import outcome
from tuner.measure import correctness
from tuner.outcome import Kind


def reason(faulty, call, rows=16, dtype=torch.float32):
    found = correctness.trial(faulty.FAULTY, faulty.problem(rows), seed=3)
    return correctness.differences(found, call, dtype)


def test_the_definition_passes_itself(faulty):
    assert reason(faulty, faulty.right) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wrong", "output differs at"),
        ("wrong_gradient", "gradient 1 differs at"),
        ("unwritten", "where memory was not zero before"),
        ("changes_inputs", correctness.CHANGED),
        ("without_gradients", "gradient 0 is missing"),
    ],
)
def test_what_is_wrong_is_said(name, says, faulty):
    assert says in reason(faulty, faulty.FAULTS[name])


def test_an_output_of_another_shape_count_or_kind_is_wrong(faulty):
    assert "has shape (16, 4) instead of (16, 8)" in reason(faulty, lambda x, w: (x * w)[:, :4])
    assert "2 outputs came instead of 1" in reason(faulty, lambda x, w: (x * w, x))
    assert "is of torch.int64" in reason(faulty, lambda x, w: (x * w).long())


def test_a_value_that_is_no_number_is_wrong_where_the_definition_has_one(faulty):
    assert "where it is nan" in reason(faulty, lambda x, w: (x * w).index_fill(0, torch.tensor([2]), torch.nan))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_may_differ_follows_from_the_dtype(dtype, faulty):
    precision = torch.finfo(dtype).eps
    assert reason(faulty, lambda x, w: x * w * (1 + precision), dtype=dtype) is None
    assert reason(faulty, lambda x, w: x * w * (1 + 600 * precision), dtype=dtype) is not None


def test_fresh_inputs_differ_from_seed_to_seed_and_not_between_calls(faulty):
    one, same, other = (correctness.trial(faulty.FAULTY, faulty.problem(4), seed) for seed in (1, 1, 2))
    assert torch.equal(one.outputs[0], same.outputs[0])
    assert not torch.equal(one.outputs[0], other.outputs[0])


def test_the_deterministic_mode_is_left_as_it_was(faulty):
    reason(faulty, faulty.right)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), Kind.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), Kind.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), Kind.OUT_OF_MEMORY),
        (RuntimeError("no such kernel"), Kind.CRASHED),
        (type("OutOfResources", (Exception,), {})("shared memory"), Kind.BUILD_ERROR),
        (type("CompilationError", (Exception,), {"__module__": "triton.compiler.errors"})("line 3"), Kind.BUILD_ERROR),
    ],
    ids=["memory", "torch-memory", "cuda-memory", "error", "resources", "compilation"],
)
def test_an_exception_tells_what_came_of_a_configuration(error, kind):
    assert outcome.of_exception(error).kind is kind


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: an illegal memory access was encountered",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        "Triton Error [HIP]:  Code: 700, Messsage: an illegal memory access was encountered",
        "HIP error: unspecified launch failure",
        "CUDA error: device-side assert triggered",
        "Triton Error [CUDA]: misaligned address",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k)`",
        "CUBLAS_STATUS_EXECUTION_FAILED",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "cuFFT error: CUFFT_EXEC_FAILED",
        "cuSPARSE: CUSPARSE_STATUS_INTERNAL_ERROR",
    ],
)
def test_an_error_of_the_device_poisons_the_process(text):
    assert outcome.poisons(RuntimeError(text))


@pytest.mark.parametrize(
    "text",
    [
        "no such kernel",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`",
        "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: invalid argument",
        "HIP error: out of memory",
        "Triton Error [CUDA]: device kernel image is invalid",
        "Triton Error [CUDA]: a PTX JIT compilation failed",
    ],
)
def test_an_error_of_a_launch_alone_does_not_poison_the_process(text):
    assert not outcome.poisons(RuntimeError(text))


class Counting:
    def __init__(self):
        self.calls = 0


def test_results_that_are_cached_by_address_are_found(faulty):
    known = {}

    def cached(x, w):
        return known.setdefault((x.data_ptr(), w.data_ptr()), x * w)

    assert "differs" in reason(faulty, cached)


def test_a_change_of_the_random_state_is_found(faulty):
    assert "random numbers" in reason(faulty, lambda x, w: x * w + 0 * torch.rand(1))


def test_a_write_outside_of_an_input_is_found(faulty):
    def outside(x, w):
        torch.as_strided(x.detach(), (1,), (1,), x.storage_offset() - 1).fill_(1.0)
        return x * w

    assert reason(faulty, outside) == correctness.OUTSIDE


def test_what_is_declared_deterministic_must_give_the_same_bits(faulty):
    counting = Counting()

    def race(x, w):
        counting.calls += 1
        return x * w * (1 + 2e-7 * (counting.calls % 2))

    found = correctness.trial(faulty.FAULTY, faulty.problem(16), seed=3)
    assert correctness.differences(found, race, torch.float32) is None
    assert "declared deterministic" in correctness.differences(found, race, torch.float32, deterministic=True)


def test_no_choice_may_be_much_worse_than_the_definition_in_bfloat16():
    operation = registry.operation("softmax")
    problem = next(each for each in operation.problems("cpu").values() if not each["gradients"])
    problem = replace(problem, sizes=(("rows", 8), ("columns", 64)), dtype="bfloat16")
    made = correctness.trial(operation, problem, seed=1)

    def omits(x):
        y = torch.zeros_like(x)
        y[:, :60] = x[:, :60].softmax(-1)
        return y

    for wrong in (lambda x: 1.25 * x.softmax(-1), lambda x: 1.02 * x.softmax(-1), omits):
        assert correctness.differences(made, wrong, torch.bfloat16) is not None
    assert correctness.differences(made, lambda x: x.softmax(-1), torch.bfloat16) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_that_cancel_may_be_added_in_any_order(dtype):
    """Whatever the definition's own error: it adds in one order, which is as lucky as any other."""

    def first(x):
        return functools.reduce(torch.add, x.unbind(1))

    def last(x):
        return functools.reduce(torch.add, x.flip(1).unbind(1))

    def lacking(x):
        return last(torch.where(x.abs() < x.abs().max(), x, 0.0))

    def inputs(problem, seed):
        x = torch.randn(1, 9, generator=torch.Generator().manual_seed(seed))
        rest = x[:, -1:] * 1e-4 - x[:, :-1].sum(1, keepdim=True)  # of the sizes of the terms little remains
        return (torch.cat([x, rest], 1).to(getattr(torch, dtype)),), {}

    sums = Operation("sums", first, {}, inputs, lambda device: {}, lambda problem: "last")
    refused = {}
    for seed in range(100):
        made = correctness.trial(sums, Problem("sums", "cpu", dtype, ()), seed)
        if reason := correctness.differences(made, last, getattr(torch, dtype)):
            refused[seed] = reason
        assert correctness.differences(made, lacking, getattr(torch, dtype)) is not None
    assert refused == {}


LEAN = [
    ("attention", "blocked", {"batch": 1, "heads": 2, "groups": 1, "queries": 9, "keys": 9, "width": 8, "reach": 9}),
    ("linear_attention", "chunks", {"batch": 1, "heads": 2, "positions": 70, "features": 4, "width": 3}),
    ("decayed_linear_attention", "chunks", {"batch": 1, "heads": 2, "positions": 70, "features": 4, "width": 3}),
]


@pytest.mark.parametrize(("name", "stands", "sizes"), LEAN, ids=[name for name, *_ in LEAN])
def test_what_stands_for_a_definition_that_fills_the_memory_equals_it(name, stands, sizes):
    operation = registry.operation(name)
    some = next(each for each in operation.problems("cpu").values() if each["gradients"])
    huge = replace(some, sizes=tuple((size, 2**16) for size, _ in some.sizes))
    assert (operation.lean(huge), operation.lean(some_of(some, sizes))) == (stands, None)

    exact = correctness.trial(operation, replace(some_of(some, sizes), dtype="float64"), seed=1)
    lean = operation.implementations[stands]
    assert correctness.differences(exact, lambda *a, **k: lean.call(*a, **k, **lean.default), torch.float64) is None


def some_of(problem, sizes):
    return replace(problem, sizes=tuple(sizes.items()))
