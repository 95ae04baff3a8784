"""Mistakes in the arguments of `tuner.tune` have messages, and unusual arguments that are right work."""

import itertools

import pytest

import tuner

triton = pytest.importorskip("triton")

from scaled_kernel import (  # noqa: E402
    allowed,  # noqa: F401
    call,
    grid,
    scale,
    tuned,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"configs": [], "space": {}}, "give either configs or space"),
        ({"configs": [], "default": {}}, "go with space"),
        ({"space": {}, "prune_configs_by": {"top_k": 1}}, "prune_configs_by goes with configs"),
        ({"space": {"BLOK": [1]}}, "space names 'BLOK', which is no argument of .*scale. Did you mean 'BLOCK'"),
        ({"key": ["sise"]}, "key names 'sise', .* Did you mean 'size'"),
        ({"limit": 0}, "limit must be a number of seconds above 0, but got 0"),
        ({"limit": float("inf")}, "limit must be a number of seconds above 0, but got inf"),
        ({"budget": "10s"}, "budget must be a number of seconds, but got '10s'"),
        ({"key": "size"}, r"key must be a list of names, but got 'size': write \['size'\]"),
        ({"effort": "huge"}, "effort must be one of none, quick, full, but got 'huge'"),
        ({"space": {"BLOCK": 64}}, r"space must give a list of values for BLOCK, but got 64: write \[64\]"),
        ({"space": {"BLOCK": "64"}}, "space must give a list of values for BLOCK, but got '64'"),
        ({"space": {}, "constraints": max}, "constraints must be a list of functions, but got max"),
        ({"space": {"BLOCK": {64, 32}}}, "BLOCK, but got .*: a set has no order"),
        ({"space": {"BLOCK": iter([64])}}, "BLOCK, but got .*: write them in brackets"),
        ({"space": {"BLOCK": []}}, "space gives no value for BLOCK"),
        ({"space": {"BLOCK": [64, 64]}}, r"space must give each value of BLOCK once, but got \[64, 64\]"),
        ({"space": {"BLOCK": [[64], [32]]}}, r"space must give single values for BLOCK, but got \[\[64\], \[32\]\]"),
        ({"space": [{"BLOCK": [64]}]}, "space must be a mapping, such as"),
        ({"space": {1: [64]}}, "space must name its parameters, but has 1"),
        ({"space": {"num_warps": ["4"]}}, "num_warps must be a whole number, but got '4'"),
        ({"space": {"BLOCK": [64]}, "default": {"BLOK": 64}}, "default names 'BLOK', .* Did you mean 'BLOCK'"),
        ({"space": {"BLOCK": [64]}, "default": {"BLOCK": 32}}, r"default must give BLOCK one of \[64\], but gives 32"),
        ({"space": {"BLOCK": [64]}, "default": [64]}, r"default must be a mapping, .* but got \[64\]"),
        ({"space": {}, "constraints": [True]}, r"constraints\[0\] must be a function of a configuration, but is True"),
        ({"space": {}, "constraints": "BLOCK > 4"}, "constraints must be a list of functions, but got 'BLOCK > 4'"),
        ({"configs": {"BLOCK": [64, 32]}}, "configs must be a list of configurations, .*To try all values: space="),
        ({"configs": 64}, "configs must be a list of configurations, but got 64: write it in brackets"),
        ({"configs": [64]}, r"configs\[0\] must be a triton.Config or a mapping of values, but is 64"),
        (
            {"configs": [{"BLOCK": 64}, None]},
            r"configs\[1\] must be a triton.Config or a mapping of values, but is None",
        ),
        ({"configs": [{"BLOK": 64}]}, "configs names 'BLOK', which is no argument of .*scale. Did you mean 'BLOCK'"),
        ({"configs": [{"BLOCK": 64, "num_warp": 4}]}, "configs names 'num_warp', .* Did you mean 'num_warps'"),
        ({"configs": [{"BLOCK": [64, 32]}]}, r"configs\[0\] gives BLOCK a list, .* space={'BLOCK': \[64, 32\]}"),
        ({"key": [0]}, r"key must be a list of names of arguments, but got \[0\]"),
        ({"key": None}, "key must be a list of names of arguments, but got None"),
        ({"reset_to_zero": "y_ptr"}, r"reset_to_zero must be a list of names, but got 'y_ptr': write \['y_ptr'\]"),
        ({"restore_value": ["y_pt"]}, "restore_value names 'y_pt', .* Did you mean 'y_ptr'"),
        ({"prune_configs_by": max}, "prune_configs_by must be a mapping with early_config_prune, .* but got max"),
        ({"prune_configs_by": {"early_prune": max}}, "no 'early_prune'. Did you mean 'early_config_prune'"),
        ({"prune_configs_by": {"perf_model": 5}}, "perf_model of prune_configs_by must be a function, but got 5"),
        ({"pre_hook": "x"}, "pre_hook must be a function, but got 'x'"),
        ({"check": "no"}, "check must be True or False, but got 'no'"),
        ({"rep": "25"}, "rep must be a number of milliseconds above 0, but got '25'"),
        ({"warmup": -1}, "warmup must be a number of milliseconds of at least 0, but got -1"),
        ({"budget": True}, "budget must be a number of seconds, but got True"),
        ({"effort": ["quick"]}, r"effort must be one of none, quick, full, but got \['quick'\]"),
        ({"strategy": "surogate"}, "strategy: No tuning strategy is called 'surogate'. Did you mean 'surrogate'"),
        ({"strategy": object}, "strategy must be the name of a tuning strategy, but got object"),
        ({"seed": -1}, "seed must be a whole number that is not negative and below 2.63, but got -1"),
        ({"seed": 2**70}, "seed must be a whole number that is not negative and below 2.63"),
        ({"store": True}, "store must be a database file or a URL, but got True"),
        ({"clock": 3}, "clock must have the methods now and time, but got 3"),
        ({"configs": scale}, "tuner.tune needs arguments: write @tuner.tune"),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value),
)
def test_says_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        tuner.tune(**options)(scale)


TWO = [{"BLOCK": 16}, {"BLOCK": 32}]


def pruned(**by):
    return {"configs": TWO, "prune_configs_by": {"top_k": 1, **by}}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (pruned(early_config_prune=lambda *_, **__: None), ValueError, "but returned None"),
        (pruned(early_config_prune=lambda *_, **__: [True]), ValueError, r"returned \[True\]"),
        (pruned(perf_model=lambda **_: None), ValueError, "returned None for BLOCK: 16"),
        ({"constraints": [lambda values: values["BLOK"] > 4]}, KeyError, "asks for 'BLOK'. Did you mean 'BLOCK'"),
        ({"constraints": [lambda values: None]}, ValueError, "scaled_kernel.scale: no configuration is left"),
        ({"key": ["x_ptr"]}, ValueError, "names 'x_ptr', which is a tensor: name numbers, such as its size"),
        ({"do_bench": lambda call, quantiles: None, "isolate": False}, RuntimeError, "must return milliseconds"),
    ],
    ids=["prunes to nothing", "prunes to bools", "no estimate", "unknown name", "no answer", "tensor", "no time"],
)
def test_says_what_is_wrong_with_the_functions_of_a_user(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        call(tuned(tmp_path, **options))


def test_a_mapping_may_have_a_hook_and_options_of_a_backend_and_iterators_are_read_once(tmp_path):
    told = []
    hook = {"pre_hook": lambda arguments: told.append(arguments["BLOCK"]), "waves_per_eu": 2, "num_warps": 2}
    kernel = tuned(tmp_path, configs=iter([{"BLOCK": 32, **hook}]))

    call(kernel)

    found = kernel.best_config
    assert (told, found.kwargs, found.num_warps) == ([32], {"BLOCK": 32, "waves_per_eu": 2}, 2)
    with pytest.raises(ValueError, match="space names 'wave_per_eu'"):
        tuner.tune(space={"wave_per_eu": [2]})(scale)
    tuner.tune(space={"waves_per_eu": [0, 2]}, constraints=iter([lambda values: True]))(scale)
    named = {name: iter(["x_ptr"]) for name in ("key", "reset_to_zero", "restore_value")}
    options = tuner.tune(configs=[{"BLOCK": 32}], **named)(scale).options
    assert options.key == options.reset_to_zero == options.restore_value == ("x_ptr",)
    names = sorted(scale.arg_names)
    assert all(tuner.tune(key=set(some))(scale).keys == sorted(some) for some in itertools.combinations(names, 3))


def test_values_that_are_equal_to_python_are_different_configurations(tmp_path):
    kernel = tuned(tmp_path, space={"BLOCK": [16], "FAULT": [1, True, 1.0, "none"]})
    call(kernel)
    (decision,) = kernel.decisions.values()
    assert decision.candidates == len(kernel.configs) == 4
    assert [type(each.kwargs["FAULT"]) for each in kernel.configs] == [int, bool, float, str]


def test_what_is_no_kernel_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"got grid: put @triton\.jit below @tuner\.tune"):
        tuner.tune()(grid)
    with pytest.raises(ValueError, match=r"decorated with tuner\.tune twice"):
        tuner.tune()(tuned(tmp_path))
