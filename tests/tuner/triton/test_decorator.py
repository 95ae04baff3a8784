"""`tuner.tune` on real Triton kernels: it chooses, remembers, leaves no trace, and says why."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import tuner
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice
from tests.conftest import QUICK
from tuner.search.results import Results
from tuner.triton import kernel as tuned_kernel
from tuner.triton.kernel import SWITCH

triton = pytest.importorskip("triton")

from scaled_kernel import (  # noqa: E402
    ARGUMENTS,
    BLOCKS,
    LAUNCHED,
    SPEED,
    Pretended,
    add_into,
    allowed,  # noqa: F401
    call,
    grid,
    scale,
    tuned,
)


def test_the_fastest_configuration_serves_and_computes_the_right_thing(tmp_path):
    kernel = tuned(tmp_path)

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 32}
    (decision,) = kernel.decisions.values()
    assert decision.choice == Choice.of("triton", {"BLOCK": 32, "num_warps": 4, "num_stages": 3, "num_ctas": 1})
    assert decision.why.startswith("faster than the default, ")
    assert 2.9 < decision.gain.low <= decision.gain.high < 3.1
    LAUNCHED.clear()
    call(kernel)
    assert LAUNCHED == [32]


def test_another_key_or_dtype_is_tuned_again_and_another_argument_is_not(tmp_path):
    clock = Pretended()
    kernel = tuned(tmp_path, clock=clock)
    call(kernel)
    before = len(clock.calls)

    call(kernel, factor=2.5)
    assert len(clock.calls) == before
    call(kernel, size=12)
    assert len(clock.calls) > before
    before = len(clock.calls)
    kernel[grid](torch.zeros(16, dtype=torch.float64), torch.zeros(16, dtype=torch.float64), 16, 1.0)
    assert len(clock.calls) > before


def test_a_second_process_measures_nothing(tmp_path):
    call(tuned(tmp_path))
    again = tuned(tmp_path, clock=Pretended({}))

    call(again)

    assert again.best_config.kwargs == {"BLOCK": 32}
    assert again.explain(torch.zeros(1), torch.zeros(1), 16, 1.5).why.startswith(
        "it was tuned: faster than the default"
    )


def test_one_configuration_more_costs_its_timing_and_the_comparison(tmp_path):
    call(tuned(tmp_path, space={"BLOCK": [16, 32, 64]}))
    clock = Pretended()

    call(tuned(tmp_path, clock=clock))

    assert set(clock.calls) == {128, 32, 64, 16}
    assert clock.calls.count(128) < clock.calls.count(16)  # it was measured alone, and is no finalist


def test_the_first_configuration_stays_where_nothing_is_faster_beyond_the_noise(tmp_path):
    noise = [1.0, 1.3, 0.8, 1.1]
    kernel = tuned(
        tmp_path,
        clock=Pretended({16: 1.0, 32: 0.99, 64: 2.0, 128: 2.0}, noise=lambda number: noise[number * 7 // 3 % 4]),
    )

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 16}
    (decision,) = kernel.decisions.values()
    assert "not faster than the default by more than the noise" in decision.why or "is the fastest" in decision.why


def test_what_raises_or_computes_something_else_is_recorded_and_never_serves(tmp_path):
    configs = [
        triton.Config({"BLOCK": 64}),
        {"BLOCK": 32, "FAULT": "wrong"},  # fastest
        {"BLOCK": 48, "num_warps": 2},  # tl.arange takes powers of two
        triton.Config({"BLOCK": 16}),
    ]
    kernel = tuned(tmp_path, configs=configs)

    call(kernel)

    assert kernel.best_config is configs[0]
    rows = Results(tmp_path / "kernels").rows(kernel.name)
    failures = {json.loads(row.configuration)["BLOCK"]: (row.failure, row.message) for row in rows}
    assert failures[32][0] == "wrong" and failures[32][1].startswith("y_ptr differs at 15 of 16 places")
    assert failures[48][0] in ("build_error", "crashed") and "power of 2" in failures[48][1]
    assert failures[64][0] is None


class OutOfResources(Exception):
    """As Triton's is called."""


def test_out_of_resources_and_out_of_memory_are_told_apart(tmp_path):
    def hook(error):
        def raises(arguments):
            raise error

        return raises

    configs = [
        triton.Config({"BLOCK": 64}),
        triton.Config({"BLOCK": 32}, pre_hook=hook(OutOfResources("shared memory"))),
        triton.Config({"BLOCK": 16}, pre_hook=hook(torch.OutOfMemoryError("CUDA out of memory"))),
    ]
    kernel = tuned(tmp_path, configs=configs)

    call(kernel)

    (decision,) = kernel.decisions.values()
    assert kernel.best_config is configs[0]
    assert decision.failures == {"build_error": 1, "out_of_memory": 1}


def test_where_nothing_runs_the_error_says_why(tmp_path):
    kernel = tuned(tmp_path, configs=[{"BLOCK": 48}, {"BLOCK": 24}])

    with pytest.raises(RuntimeError, match=r"scale: no configuration of it runs. The first one: .*power of 2"):
        call(kernel)


@pytest.mark.parametrize("options", [{}, {"restore_value": ["y_ptr"]}, {"reset_to_zero": ["y_ptr"]}], ids=str)
def test_tuning_leaves_no_trace_in_what_is_updated_in_place(tmp_path, options):
    kernel = tuned(tmp_path, add_into, **options)
    whole = torch.arange(200.0)
    x, y = torch.ones(100), whole[50:150]

    kernel[grid](x, y, 100)

    # Triton's autotuner leaves what it resets at zero when it has measured.
    before = torch.zeros(100) if "reset_to_zero" in options else torch.arange(50.0, 150.0)
    torch.testing.assert_close(whole[50:150], before + 1)
    torch.testing.assert_close(whole[:50], torch.arange(50.0))
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_hooks_are_called_as_triton_calls_them(tmp_path):
    told = []
    kernel = tuned(
        tmp_path,
        configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}, pre_hook=lambda args: told.append("own"))],
        pre_hook=lambda args, reset_only=False: told.append(("pre", args["BLOCK"], reset_only)),
        post_hook=lambda args, exception: told.append(("post", args["BLOCK"], exception)),
    )

    call(kernel)

    assert told.count(("pre", 32, False)) == told.count(("post", 32, None)) > 0
    assert told[-2:] == [("pre", 32, True), "own"]


def test_takes_the_arguments_of_triton_autotune_in_their_order(tmp_path):
    asked = []

    def do_bench(kernel_call, quantiles):
        kernel_call()
        asked.append(quantiles)
        return [SPEED[LAUNCHED[-1]]] * 3

    def early(configs, named, **kwargs):
        assert named["size"] == 16
        return [each for each in configs if each.kwargs["BLOCK"] != 32]

    def model(BLOCK, size, **others):
        return BLOCK

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    prune = {"early_config_prune": early, "perf_model": model, "top_k": 2}
    decorated = tuner.tune(configs, ["size"], prune, None, None, None, None, None, None, False, do_bench, False)
    kernel = decorated(scale)

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert set(LAUNCHED) == {16, 64}
    assert set(asked) == {(0.5, 0.2, 0.8)}


def test_stands_on_heuristics_and_under_them(tmp_path):
    heuristics = triton.heuristics({"BLOCK": lambda arguments: 32})
    kernel = tuned(tmp_path, heuristics(scale), space={"num_warps": [4, 2]}, clock=Pretended({32: 1.0}))

    call(kernel)
    call(triton.heuristics({"FAULT": lambda arguments: "none"})(tuned(tmp_path)))


def test_constraints_see_the_configuration_and_the_arguments(tmp_path):
    kernel = tuned(tmp_path, constraints=[lambda values: values["BLOCK"] >= values["size"]], default={"BLOCK": 128})

    call(kernel, size=40)

    assert set(LAUNCHED) == {64, 128}
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_a_large_space_is_searched_and_not_exhausted(tmp_path, monkeypatch):
    monkeypatch.setitem(tuned_kernel.EVALUATIONS, "quick", 7)
    kernel = tuned(tmp_path, space={"num_warps": [1, 2, 4, 8], "BLOCK": BLOCKS})

    call(kernel)

    (decision,) = kernel.decisions.values()
    assert decision.candidates == 7
    assert SPEED[kernel.best_config.kwargs["BLOCK"]] <= SPEED[16]


def test_a_search_that_lacked_time_goes_on_in_the_next_process(tmp_path):
    first = tuned(tmp_path, budget=-1.0)
    call(first)
    assert first.best_config.kwargs == {"BLOCK": 16}
    assert "its tuning did not end" in first.explain(*ARGUMENTS).why

    clock = Pretended()
    second = tuned(tmp_path, clock=clock)
    call(second)

    assert second.best_config.kwargs == {"BLOCK": 32}
    assert clock.calls.count(16) < clock.calls.count(32)  # the default was known


def test_more_effort_than_before_tunes_again_and_less_does_not(tmp_path):
    call(tuned(tmp_path))
    assert "it was tuned with less effort, quick" in tuned(tmp_path, effort="full").explain(*ARGUMENTS).why
    clocks = Pretended(), Pretended()

    call(tuned(tmp_path, effort="none", clock=clocks[0]))
    call(tuned(tmp_path, effort="full", clock=clocks[1]))

    assert not clocks[0].calls and clocks[1].calls


def test_what_poisons_the_device_is_recorded_and_raised_and_not_tried_again(tmp_path):
    def hook(arguments):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 16}, pre_hook=hook), triton.Config({"BLOCK": 32})]
    with pytest.raises(RuntimeError, match="illegal memory access"):
        call(tuned(tmp_path, configs=configs, isolate=False))

    again = tuned(tmp_path, configs=configs)
    call(again)
    assert again.best_config is configs[2]


@pytest.mark.parametrize(
    ("setting", "reason"), [("off", "NAS_TUNING=off"), (None, "nothing is tuned inside a test unless NAS_TUNING=on")]
)
def test_nothing_is_tuned_where_it_must_not_be(tmp_path, monkeypatch, setting, reason):
    monkeypatch.setenv(SWITCH, setting) if setting else monkeypatch.delenv(SWITCH)
    clock = Pretended()
    kernel = tuned(tmp_path, clock=clock)

    said = []
    monkeypatch.setattr(tuned_kernel.log, "info", lambda message, *values: said.append(message % values))
    call(kernel)

    assert (clock.calls, kernel.best_config.kwargs) == ([], {"BLOCK": 16})
    assert any(reason in line for line in said)
    monkeypatch.setenv(SWITCH, "on")
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_nothing_is_tuned_in_a_capture_or_a_trace(tmp_path, monkeypatch):
    clock = Pretended()
    kernel = tuned(tmp_path, clock=clock)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    call(kernel)
    assert not clock.calls
    assert "the capture of a CUDA graph" in kernel.explain(*ARGUMENTS).why
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert "a trace of torch.compile" in kernel.explain(*ARGUMENTS).why


TRACE = """
import sys, torch, triton, tuner
import torch.utils._triton
from triton import language as tl

torch.utils._triton.has_triton = lambda: True  # what is compiled here is never run


@tuner.tune(space={"BLOCK": [16, 32]}, key=["size"], store=sys.argv[1])
@triton.jit
def double(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + places, 2 * tl.load(x_ptr + places, mask=places < size), mask=places < size)


def doubled(x):
    y = torch.empty_like(x)
    double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


def backend(graph, inputs):
    print(graph.code)
    return lambda *arguments: (torch.zeros(40),)


torch.compile(doubled, backend=backend, fullgraph=True)(torch.ones(40))


def wrapped(x):
    y = torch.empty_like(x)
    tuner.wrap_triton(double)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


print(torch.fx.experimental.proxy_tensor.make_fx(wrapped, tracing_mode="fake")(torch.ones(40)).code)

from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

print("for inductor:", {len(getattr(each, "configs", "1")) for each in kernel_side_table.id_to_kernel.values()})

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from tuner.triton.case import Launch
from tuner.measure.precompile import Elsewhere, compile_choice
from tuner.triton.isolation import compilers

driver.set_active(Elsewhere(GPUTarget("cuda", 90, 32), 3))
x = torch.ones(40)
pulled = triton.Config({"BLOCK": 32}, num_warps=1, pre_hook=lambda arguments: 1 / 0)
ahead, *others = compilers(Launch(double.fn, (x, x, 40), {}, (1,), {}), lambda choice: pulled)
print("ahead of time:", ahead.answer("one", 60.0).ended)
ahead.close()

from kernels.dispatch.registry import Choice, operation

softmax = operation("softmax")
problem = softmax.problem("cuda", "bfloat16", (64, 256), (False,))
choice = Choice.of("triton", softmax.implementations["triton"].default)
compile_choice(problem, choice, Elsewhere(driver.active.target, 2))
"""


def test_is_part_of_a_whole_graph_of_torch_compile(tmp_path, root):
    """In a process of its own, because here Triton is its interpreter."""
    (tmp_path / "traced.py").write_text(QUICK + TRACE)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(tmp_path / "traced.py"), str(tmp_path / "kernels")]

    environment |= {"PYTHONPATH": str(root), "TRITON_CACHE_DIR": str(tmp_path / "compiled")}
    environment["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
    done = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-3000:]
    assert "triton_kernel_wrapper_mutation" in done.stdout and "grid = [(3, 1, 1)]" in done.stdout
    made = done.stdout.rpartition("def forward")[2]
    assert "triton_kernel_wrapper_mutation" in made and "'BLOCK': 16" in made, "make_fx gives a node of the graph too"
    assert "device(type='meta')" not in made, "the look-up is no part of it"
    assert "for inductor: {1}" in done.stdout, "with one configuration: nothing is left for it to tune"
    assert "ahead of time: None" in done.stdout
    assert list((tmp_path / "compiled").glob("*/double.cubin")), "a child compiles for a GPU that is not there"
    assert list((tmp_path / "compiled").glob("*/_forward.cubin")), "and so for our own operations"
    assert not (tmp_path / "kernels").exists()


def test_a_miss_says_why(tmp_path):
    kernel = tuned(tmp_path)
    assert "nothing of this kernel was tuned; it will be tuned" in kernel.explain(*ARGUMENTS).why
    call(kernel)
    assert "these arguments were not tuned, only 1 others" in kernel.explain(*ARGUMENTS[:2], 13, 1.5).why

    rows = Results(tmp_path / "kernels").rows(kernel.name)

    def why(rows=rows, **changes):
        """Why a configuration serves if `rows` were measured on a device that differs from this one."""
        known = {**fingerprint("cpu").to_dict(), **changes}
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        Results(place).add(known, rows)
        return tuned(place.parent, store=place).explain(*ARGUMENTS).why

    assert "it was tuned: " in why(torch="0.1"), "the key of the device counts"
    assert "it was tuned elsewhere: torch 0.1" in why(torch="0.1", key="elsewhere")
    assert "the kernel has changed since it was tuned" in why([replace(each, source="0") for each in rows])
