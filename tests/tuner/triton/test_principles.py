"""What serves was checked: as it was compiled, on other contents of every output, and no other error is taken for a
configuration's. A launch costs no more than under `triton.autotune`."""

import importlib.util
import json
import signal
import statistics
import time

import pytest
import torch

import tuner
from tuner.search.results import Results
from tuner.triton.kernel import Served
from tuner.triton.source import source

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from scaled_kernel import ARGUMENTS, LAUNCHED, Pretended, allowed, call, grid, scale, tuned  # noqa: E402, F401

FILE = """import triton
from triton import language as tl


@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
"""


def loaded(path):
    spec = importlib.util.spec_from_file_location("saved_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize("wrap", [lambda kernel: kernel, lambda kernel: triton.JITFunction(kernel.fn)])
def test_the_hash_is_that_of_the_code_that_runs_not_of_what_was_saved_since(tmp_path, wrap):
    path = tmp_path / "saved_kernel.py"
    path.write_text(FILE)
    first, same = wrap(loaded(path)), wrap(loaded(path))
    known = source(first)
    path.write_text(FILE.replace("1.0", "2.0"))

    assert source(first) == known
    assert source(wrap(loaded(path))) != known
    if hasattr(same, "src"):  # which was compiled from the text before, although nothing has asked for its hash
        assert source(same) == known


@triton.jit
def with_a_buffer(x_ptr, y_ptr, buffer_ptr, size, BLOCK: tl.constexpr, CLEARS: tl.constexpr = True):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    if CLEARS:
        tl.store(buffer_ptr + places, tl.zeros((BLOCK,), tl.float32), mask=inside)
    tl.store(
        y_ptr + places, tl.load(x_ptr + places, mask=inside) + tl.load(buffer_ptr + places, mask=inside), mask=inside
    )


@triton.jit
def clearing(x_ptr, y_ptr, buffer_ptr, size, BLOCK: tl.constexpr, CLEARS: tl.constexpr = True):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    if CLEARS:
        tl.store(buffer_ptr + places, tl.zeros((BLOCK,), tl.float32), mask=inside)
    tl.store(y_ptr + places, 2 * tl.load(x_ptr + places, mask=inside), mask=inside)


@pytest.mark.parametrize("kernel", [with_a_buffer, clearing], ids=["reads the buffer", "only clears it"])
def test_a_configuration_that_needs_a_buffer_of_zeros_never_serves_instead_of_one_that_clears_it(tmp_path, kernel):
    kernel = tuned(tmp_path, kernel, configs=[{"BLOCK": 64}, {"BLOCK": 32, "CLEARS": False}, {"BLOCK": 16}])
    x, y = torch.arange(16.0), torch.zeros(16)
    kernel[grid](x, y, torch.zeros(16), 16)

    (decision,) = kernel.decisions.values()
    assert decision.failures == {"wrong": 1}
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    kernel[grid](x, y, buffer := torch.ones(16), 16)
    assert not buffer.any()


def test_a_constant_of_the_call_is_a_part_of_what_was_checked(tmp_path):
    """`FAULT` is wrong in the call here, and in no configuration."""
    kernel = tuned(tmp_path)
    call(kernel)
    assert "were not tuned" in kernel.explain(*ARGUMENTS, FAULT="wrong").why
    assert "it was tuned" in kernel.explain(*ARGUMENTS).why


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("error", [TimeoutError, RuntimeError])  # the first is an OSError, as that of a broken pipe
def test_an_error_of_the_programs_own_handler_of_a_signal_is_raised_and_kept_for_no_configuration(
    tmp_path, error, isolate
):
    class Alarmed(Pretended):
        def time(self, call):
            milliseconds = super().time(call)
            if LAUNCHED[-1] == 32:
                signal.raise_signal(signal.SIGALRM)
            return milliseconds

    def handler(number, frame):
        raise error("the program has waited for long enough")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(error, match="long enough"):
            call(tuned(tmp_path, clock=Alarmed(), isolate=isolate))
        assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.signal(signal.SIGALRM, before)

    rows = Results(tmp_path / "kernels").rows()
    assert {json.loads(row.configuration)["BLOCK"] for row in rows} == {16}, "only the default was measured"
    assert not any(row.failure for row in rows)
    again = tuned(tmp_path, isolate=isolate)
    call(again)
    assert again.best_config.kwargs == {"BLOCK": 32}


class Stub:
    """A kernel whose launch costs nothing."""

    def __init__(self):
        self.fn, self.arg_names = scale.fn, list(scale.arg_names)

    def run(self, *args, grid, warmup, **kwargs):
        pass


@pytest.mark.parametrize("named", [False, True], ids=["positional", "by name"])
def test_what_a_launch_adds_costs_no_more_than_under_autotune(named):
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    theirs = triton.runtime.autotuner.Autotuner(
        Stub(), scale.arg_names, configs, ["size"], None, None, do_bench=lambda call, quantiles: [1.0] * 3
    )
    ours = tuner.tune(configs, ["size"], cache_results=False)(Stub())
    x, y = torch.zeros(16), torch.zeros(16)
    ours._decided[ours._key({"x_ptr": x, "y_ptr": y, "size": 16, "factor": 1.5})] = Served(configs[0], "")

    def seconds(kernel):
        began = time.perf_counter()
        for _ in range(500):
            kernel[(1,)](x, y, size=16, factor=1.5) if named else kernel[(1,)](x, y, 16, 1.5)
        return time.perf_counter() - began

    seconds(theirs), seconds(ours)  # from here on both know the key
    ratios = [seconds(ours) / seconds(theirs) for _ in range(21)]
    assert statistics.median(ratios) <= 1.0
