"""`tuner.tune` does what the documentation of `triton.autotune` says, under Triton's interpreter.

What cannot run here: `cache_results` of Triton reads Triton's cache of compiled kernels, which the interpreter has not;
`use_cuda_graph` and the default benchmark need a device; `warmup` compiles, which the interpreter does not; `maxnreg`
and an override of the IR are settings of a compiler.
"""

import pytest
import torch

import tuner

triton = pytest.importorskip("triton")

from scaled_kernel import (  # noqa: E402
    SPEED,
    Pretended,
    allowed,  # noqa: F401
    call,
    grid,
    scale,
    tuned,
)


def bench_by_block(seen):
    """A benchmark that calls the kernel, and tells the time of the block it was launched with."""

    def bench(call, quantiles):
        from scaled_kernel import LAUNCHED

        call()
        seen.append(quantiles)
        time = SPEED[LAUNCHED[-1]]
        return [time, 0.9 * time, 1.1 * time]

    return bench


CONFIGS = [triton.Config({"BLOCK": block}) for block in SPEED]


def test_a_benchmark_is_called_with_the_quantiles_of_triton_and_its_first_value_counts(tmp_path):
    seen = []
    kernel = tuned(tmp_path, configs=CONFIGS, do_bench=bench_by_block(seen))

    call(kernel)

    assert set(seen) == {(0.5, 0.2, 0.8)}
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert {config.kwargs["BLOCK"]: times[0] for config, times in kernel.configs_timings.items()} == SPEED
    assert all(len(times) == 3 for times in kernel.configs_timings.values())
    assert kernel.bench_time > 0


def test_one_configuration_is_not_benchmarked(tmp_path):
    seen = []
    kernel = tuned(tmp_path, configs=CONFIGS[:1], do_bench=bench_by_block(seen))
    call(kernel)
    assert (seen, kernel.best_config) == ([], CONFIGS[0])


def test_early_pruning_sees_the_arguments_and_what_it_leaves_out_never_runs(tmp_path):
    given = []

    def prune(configs, named_args, **kwargs):
        given.append((set(named_args), set(kwargs)))
        return [each for each in configs if each.kwargs["BLOCK"] > 32]

    kernel = tuned(
        tmp_path, configs=CONFIGS, prune_configs_by={"early_config_prune": prune}, clock=(clock := Pretended())
    )
    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert set(clock.calls) == {64, 128}
    assert given[0] == ({"x_ptr", "y_ptr", "size", "factor"}, {"grid", "warmup"})


@pytest.mark.parametrize(("top", "tried"), [(2, {16, 32}), (0.25, {16}), (1.0, set(SPEED)), (9, set(SPEED))])
def test_a_performance_model_leaves_the_best_it_expects(tmp_path, top, tried):
    model = {"perf_model": lambda BLOCK, **given: BLOCK, "top_k": top}
    kernel = tuned(tmp_path, configs=CONFIGS, prune_configs_by=model, clock=(clock := Pretended()))
    call(kernel)
    assert set(clock.calls) == (tried if len(tried) > 1 else set())


def test_a_share_that_is_neither_a_share_nor_a_count_is_an_error(tmp_path):
    model = {"perf_model": lambda **given: 1.0, "top_k": 1.5}
    with pytest.raises(TypeError, match="top_k"):
        call(tuned(tmp_path, configs=CONFIGS, prune_configs_by=model))
    with pytest.raises(ValueError, match="must leave one"):
        call(tuned(tmp_path, configs=CONFIGS, prune_configs_by={"early_config_prune": lambda *_, **__: []}))


def test_a_hook_of_a_configuration_runs_before_each_launch_of_it(tmp_path):
    told = []
    hooked = triton.Config({"BLOCK": 32}, pre_hook=lambda arguments: told.append(arguments["size"]))
    kernel = tuned(tmp_path, configs=[CONFIGS[0], hooked])
    call(kernel)
    during = len(told)
    call(kernel)
    assert kernel.best_config is hooked
    assert during > 1 and told[during:] == [16]


def test_results_are_remembered_on_disk_only_if_they_are_to_be(tmp_path):
    for cached in (False, True):
        call(tuned(tmp_path, configs=CONFIGS, cache_results=cached))
        assert (tmp_path / "kernels").exists() == cached
    clock = Pretended({})
    call(tuned(tmp_path, configs=CONFIGS, clock=clock))
    assert not clock.calls


def test_a_configuration_that_lacks_resources_has_an_infinite_time(tmp_path):
    class OutOfResources(Exception):
        """As Triton's is called."""

    def lacks(arguments):
        raise OutOfResources("shared memory")

    lacking = triton.Config({"BLOCK": 32}, pre_hook=lacks)
    kernel = tuned(tmp_path, configs=[CONFIGS[0], lacking])
    call(kernel)
    assert kernel.configs_timings[lacking][0] == float("inf")
    assert kernel.best_config is CONFIGS[0]


def test_a_wrapped_kernel_is_tuned_where_nothing_is_traced(tmp_path):
    kernel = tuned(tmp_path, configs=CONFIGS)
    x, y = torch.arange(16.0), torch.zeros(16)
    tuner.wrap_triton(kernel)[grid](x, y, 16, factor=1.5)
    assert y.equal(3 * x) and kernel.best_config.kwargs == {"BLOCK": 32}
    with pytest.raises(TypeError, match=r"a kernel of tuner\.tune, but got JITFunction|InterpretedFunction"):
        tuner.wrap_triton(scale)


def test_a_keyword_argument_may_be_part_of_the_key(tmp_path):
    clock = Pretended()
    kernel = tuned(tmp_path, configs=CONFIGS, clock=clock)
    x, y = torch.arange(16.0), torch.zeros(16)
    kernel[grid](x, y, size=16, factor=1.5)
    before = len(clock.calls)
    kernel[grid](x, y, size=16, factor=2.5)
    kernel[grid](x, y_ptr=y, size=16, factor=2.5)
    assert len(clock.calls) == before
    assert scale is not None and len(kernel.cache) == 1
