"""A kernel is never disabled, never serves what was not checked, and blames a configuration only for its own faults."""

import gc

import pytest
import torch

from kernels.dispatch.device import fingerprint
from tuner.search.results import Results
from tuner.triton import copies
from tuner.triton.tracing import settings_of_trace

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
TensorDescriptor = pytest.importorskip("triton.tools.tensor_descriptor").TensorDescriptor

from scaled_kernel import (  # noqa: E402
    ARGUMENTS,
    Pretended,
    add_into,
    allowed,  # noqa: F401
    apply,
    apply_all,
    call,
    grid,
    thrice,
    tuned,
    twice,
)


def test_what_was_checked_and_against_what_is_stored(tmp_path):
    kernel = tuned(tmp_path)
    call(kernel)

    rows = Results(tmp_path / "kernels").rows(kernel.name)
    assert {row.message.split(":")[0] for row in rows} == {"checked on 2 sets of inputs"}
    assert any("y_ptr, against triton BLOCK=16" in row.message for row in rows)


def test_a_stored_winner_that_was_never_checked_is_checked_before_it_serves(tmp_path):
    configs = [{"BLOCK": 64}, {"BLOCK": 32, "FAULT": "wrong"}, {"BLOCK": 16}]
    unchecked = tuned(tmp_path, configs=configs, check=False)
    unchecked[grid](torch.ones(16), torch.ones(16), 16, 1.5)
    assert unchecked.best_config.kwargs["BLOCK"] == 32

    checked = tuned(tmp_path, configs=configs)
    call(checked)

    assert checked.best_config.kwargs == {"BLOCK": 64}
    again = tuned(tmp_path, configs=configs)
    call(again)
    assert again.best_config.kwargs == {"BLOCK": 64}


def test_a_default_that_fails_does_not_end_the_checks(tmp_path):
    configs = [{"BLOCK": 48}, {"BLOCK": 64}, {"BLOCK": 32, "FAULT": "wrong"}, {"BLOCK": 16}]
    kernel = tuned(tmp_path, configs=configs)

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 64}, "16 is slower, 32 writes something else"
    assert kernel.explain(*ARGUMENTS).why == "it was tuned: the default cannot serve: build_error"


def test_without_memory_for_a_check_the_default_serves_with_one_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "available", lambda device: 0)
    clock = Pretended()
    kernel = tuned(tmp_path, clock=clock)

    with pytest.warns(RuntimeWarning, match="first configuration serves: no configuration can be checked") as said:
        call(kernel)
        call(kernel)
        call(kernel, size=17)

    assert not clock.calls and len(said) == 1


def test_a_call_that_shows_no_output_decides_nothing_for_the_next_one(tmp_path):
    kernel = tuned(tmp_path, configs=[{"BLOCK": 64}, {"BLOCK": 32, "FAULT": "wrong"}, {"BLOCK": 16}], key=[])

    kernel[grid](torch.empty(0), torch.empty(0), 0, 1.5)
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert not (tmp_path / "kernels").exists()

    call(kernel)
    assert kernel.decisions, "this call is tuned"
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_calls_that_never_show_an_output_are_not_checked_for_ever(tmp_path):
    kernel = tuned(tmp_path, key=[])
    with pytest.warns(RuntimeWarning, match="a wrong result would not show") as said:
        for _ in range(5):
            kernel[grid](torch.empty(0), torch.empty(0), 0, 1.5)
    assert len(said) == 1
    assert len(kernel.cache) == 1


def test_hooks_of_one_name_are_different_configurations(tmp_path):
    def filling(number):
        return lambda arguments: arguments["y_ptr"].fill_(number)

    kernel = tuned(
        tmp_path, add_into, configs=[triton.Config({"BLOCK": 16}, pre_hook=filling(each)) for each in (0, 5)]
    )
    x, y = torch.randn(16), torch.zeros(16)
    kernel[grid](x, y, 16)

    assert torch.equal(y, x), "the second configuration adds to something else"
    (decision,) = kernel.decisions.values()
    assert decision.failures == {"wrong": 1}


def test_torch_compile_refuses_a_configuration_with_a_hook(tmp_path):
    kernel = tuned(tmp_path, configs=[triton.Config({"BLOCK": 16}, pre_hook=lambda arguments: None)])

    with pytest.raises(NotImplementedError, match="pre_hook"):
        settings_of_trace(kernel.number, (("size", 16),))


def test_an_error_of_the_grid_is_raised_and_disables_nothing(tmp_path):
    kernel = tuned(tmp_path)
    with pytest.raises(KeyError, match="BLOK"):
        kernel[lambda meta: (triton.cdiv(meta["size"], meta["BLOK"]),)](*ARGUMENTS)
    assert not (tmp_path / "kernels").exists(), "no configuration is to blame"

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_a_grid_that_fails_for_some_configurations_is_tried_again(tmp_path):
    def broken(meta):
        if meta["BLOCK"] == 32:
            raise ValueError("a mistake")
        return grid(meta)

    x, y = torch.arange(16.0), torch.zeros(16)
    first = tuned(tmp_path)
    first[broken](x, y, 16, 1.5)
    (decision,) = first.decisions.values()
    assert decision.failures == {"call": 1}

    second = tuned(tmp_path, space={"BLOCK": [16, 32, 64]})
    call(second)
    assert second.best_config.kwargs == {"BLOCK": 32}


def test_a_missing_argument_is_the_callers_error(tmp_path):
    kernel = tuned(tmp_path)

    with pytest.raises(TypeError, match=r"scale\(\) lacks the argument 'factor'"):
        kernel[grid](torch.zeros(16), torch.zeros(16), 16)
    with pytest.raises(ValueError, match="BLOCK is given in the call"):
        kernel[grid](torch.zeros(16), torch.zeros(16), 16, 1.5, BLOCK=16)
    for wrong in (1, lambda meta: 1, ()):
        with pytest.raises(TypeError, match=r"the grid of scale must be a tuple of 1 to 3 numbers, but is"):
            kernel[wrong](torch.zeros(16), torch.zeros(16), 16, 1.5)
    assert not (tmp_path / "kernels").exists()


def test_a_call_in_which_nothing_ran_is_measured_again(tmp_path):
    broken = [triton.Config({"BLOCK": 16}, pre_hook=lambda arguments: 1 / 0), {"BLOCK": 48}]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="The first one: ZeroDivisionError") as told:
            call(tuned(tmp_path, configs=broken))
        assert isinstance(told.value.__cause__, ZeroDivisionError), "it was tried again"


def test_what_is_forgotten_is_measured_again(tmp_path):
    kernel = tuned(tmp_path)
    call(kernel)
    call(kernel, size=12)

    kernel.forget(*ARGUMENTS)
    assert "was forgotten" in kernel.explain(*ARGUMENTS).why
    clock = Pretended()
    again = tuned(tmp_path, clock=clock)
    call(again, size=12)
    assert not clock.calls
    call(again)
    assert clock.calls
    kernel.forget()
    clock.calls.clear()
    call(tuned(tmp_path, clock=clock), size=12)
    assert clock.calls


def test_a_decision_takes_seven_rounds_even_for_slow_kernels(tmp_path):
    class Slow(Pretended):
        def now(self):
            return 100.0 * len(self.calls)

    kernel = tuned(tmp_path, clock=Slow({16: 30.0, 32: 15.0, 64: 40.0, 128: 50.0}))

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 32}
    (decision,) = kernel.decisions.values()
    assert decision.gain.coverage > 0.98


def test_warm_tunes_without_launching(tmp_path):
    kernel = tuned(tmp_path)
    y = torch.full((16,), -1.0)

    served = kernel.warm(torch.ones(16), y, 16, 1.5, grid=grid)

    assert bool((y == -1).all()) and served.config.kwargs == {"BLOCK": 32}
    assert str(served).startswith("BLOCK: 32, num_warps: 4")


def test_garbage_collection_is_as_it_was(tmp_path):
    before = gc.get_threshold(), gc.isenabled()
    frozen = gc.get_freeze_count()
    call(tuned(tmp_path))
    assert (gc.get_threshold(), gc.isenabled()) == before
    assert 0 < gc.get_freeze_count() <= frozen if frozen else gc.get_freeze_count() == 0, (
        "frozen objects may be deleted"
    )


@pytest.mark.parametrize(
    ("kernel", "one", "other"), [(apply, twice, thrice), (apply_all, (twice,), (thrice,))], ids=["alone", "in a tuple"]
)
def test_a_choice_that_was_checked_with_one_function_does_not_serve_another(tmp_path, kernel, one, other):
    kernel = tuned(tmp_path, kernel=kernel)
    x, y = torch.arange(16.0), torch.zeros(16)
    kernel[grid](x, y, 16, FUNCTION=one)

    assert "it was tuned" in kernel.explain(x, y, 16, FUNCTION=one).why
    assert "has changed since" in kernel.explain(x, y, 16, FUNCTION=other).why
    kernel[grid](x, y, 16, FUNCTION=other)
    assert len(kernel.decisions) == 2
    torch.testing.assert_close(y, 3 * x)


def test_the_programs_own_default_device_does_not_matter(tmp_path):
    kernel = tuned(tmp_path)
    x, y = torch.arange(16.0), torch.zeros(16)
    with torch.device("meta"):
        kernel[grid](x, y, 16, 1.5)

    torch.testing.assert_close(y, 3 * x)
    assert "it was tuned" in kernel.explain(x, y, 16, 1.5).why


def test_all_calls_can_be_forgotten_though_what_is_allowed_depends_on_the_call(tmp_path):
    def prune(configs, named, **kwargs):
        return [each for each in configs if each.kwargs["BLOCK"] <= 4 * named["size"]]

    def made(clock=None):
        some = {"configs": [{"BLOCK": 16}, {"BLOCK": 32}], "prune_configs_by": {"early_config_prune": prune}}
        allows = {"constraints": [lambda values: values["BLOCK"] <= 4 * values["size"]]}
        return [tuned(tmp_path / str(n), clock=clock, **each) for n, each in enumerate((some, allows))]

    for kernel in made():
        call(kernel)
        kernel.forget()
    clock = Pretended()
    for kernel in made(clock):
        clock.calls.clear()
        call(kernel)
        assert clock.calls, "it was measured again"


def test_explain_says_what_a_call_uses_that_no_stored_result_tells(tmp_path):
    kernel = tuned(tmp_path, cache_results=False)
    call(kernel)
    served = kernel.explain(*ARGUMENTS)
    assert served.config == kernel.best_config and "it was tuned: faster than the default" in served.why
    assert "effort is none" in tuned(tmp_path, effort="none").explain(*ARGUMENTS).why


def test_explain_says_that_all_calls_were_forgotten(tmp_path):
    kernel = tuned(tmp_path)
    kernel.forget()
    assert "nothing of this kernel was tuned" in kernel.explain(*ARGUMENTS).why
    call(kernel)
    kernel.forget()
    assert "was forgotten" in kernel.explain(*ARGUMENTS).why
    call(kernel)
    assert "it was tuned" in kernel.explain(*ARGUMENTS).why


def test_explain_says_that_a_call_was_tuned_elsewhere_also_if_all_of_this_device_was_forgotten(tmp_path):
    call(tuned(tmp_path, store=tmp_path / "there"))
    kernel = tuned(tmp_path)
    known = {**fingerprint("cpu").to_dict(), "key": "elsewhere", "torch": "0.1"}
    rows = Results(tmp_path / "there").rows(kernel.name)
    Results(tmp_path / "kernels").add(known, rows)
    kernel.forget()
    assert "it was tuned elsewhere: torch 0.1" in kernel.explain(*ARGUMENTS).why


@triton.jit
def copy_first(pair, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    tl.store(pair[1] + places, tl.load(pair[0] + places, mask=inside), mask=inside)


@triton.jit
def copy_described(pair, size, BLOCK: tl.constexpr):
    pair[1].store([0], pair[0].load([0]))


@pytest.mark.parametrize(
    ("kernel", "hold"),
    [(copy_first, lambda each: each), (copy_described, lambda each: TensorDescriptor.from_tensor(each, [16]))],
    ids=["tensors", "TMA descriptors"],
)
def test_tensors_of_another_dtype_inside_a_tuple_are_another_call(tmp_path, kernel, hold):
    kernel = tuned(tmp_path, kernel=kernel)
    for dtype in (torch.float32, torch.float16):
        x, y = torch.arange(16, dtype=dtype), torch.zeros(16, dtype=dtype)
        kernel[grid]((hold(x), hold(y)), 16)
        assert torch.equal(x, y)
    assert len(kernel.decisions) == 2
    again = tuned(tmp_path, kernel=kernel.fn)
    assert "it was tuned" in again.explain((hold(x), hold(y)), 16).why


@triton.jit
def weighted(x_ptr, y_ptr, z_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    total = tl.zeros((BLOCK,), tl.float32)
    if x_ptr is not None:
        total += tl.load(x_ptr + places, mask=inside)
    if y_ptr is not None and BLOCK != 32:
        total += tl.load(y_ptr + places, mask=inside)
    tl.store(z_ptr + places, total, mask=inside)


def test_calls_that_leave_out_other_arguments_are_other_calls(tmp_path):
    kernel = tuned(tmp_path, kernel=weighted)
    for some in ((torch.ones(16), None), (None, torch.ones(16))):
        result = torch.zeros(16)
        kernel[grid](*some, result, 16)
        assert result.eq(1).all()
