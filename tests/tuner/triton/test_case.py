"""A call starts from what similar calls have measured: other keys, other devices, and what was recorded."""

import math
from dataclasses import replace

import pytest
import torch

import tuner
from kernels.dispatch.device import fingerprint
from tuner.search.results import Results
from tuner.triton import kernel as tuned_kernel
from tuner.triton.case import Launch

triton = pytest.importorskip("triton")

from scaled_kernel import BLOCKS, Pretended, allowed, call, grid, scale, tuned  # noqa: E402, F401

SPACE = {"BLOCK": [128, 64, 16, 32], "num_warps": [4, 8]}


def tried(clock):
    return list(dict.fromkeys(clock.calls))


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setitem(tuned_kernel.EVALUATIONS, "quick", 3)


def test_the_winner_of_the_last_key_is_among_the_first_three(tmp_path):
    for size, speed in ((4, {16: 1.0, 32: 4.0, 64: 4.0, 128: 4.0}), (12, {16: 4.0, 32: 1.0, 64: 4.0, 128: 4.0})):
        call(tuned(tmp_path, clock=Pretended(speed)), size=size)
    clock = Pretended()

    call(tuned(tmp_path, space={"BLOCK": [128, 64, 16, 32]}, clock=clock), size=14)

    assert tried(clock)[:3] == [128, 32, 16], "the default, the winner of the nearest key, that of the other"


def test_the_winner_that_was_recorded_under_autotune_is_among_the_first_three(tmp_path):
    with tuner.listen(tmp_path / "kernels") as listener:
        listener(
            fn=scale,
            key=(12, "torch.float32"),
            best_config=None,
            configs_timings={triton.Config({"BLOCK": block}): [1.0 if block == 32 else 9.0] * 3 for block in BLOCKS},
            duration=1.0,
            cache_hit=False,
            names=("size",),
        )
    clock = Pretended()

    call(tuned(tmp_path, space={"BLOCK": [128, 64, 16, 32]}, clock=clock))

    assert tried(clock)[:2] == [128, 32]


@pytest.mark.parametrize("killed", [False, True], ids=["", "and was killed there later"])
def test_the_winner_on_another_device_is_among_the_first_three(tmp_path, killed):
    call(tuned(tmp_path, store=tmp_path / "there"))
    rows = Results(tmp_path / "there").rows(tuned(tmp_path).name)
    if killed:  # which says nothing about it
        failed = {"milliseconds": None, "samples": (), "failure": "killed", "turns": None}
        rows += [replace(row, **failed) for row in rows if '"BLOCK":32' in row.configuration]
    known = {**fingerprint("cpu").to_dict(), "key": "elsewhere", "name": "another CPU"}
    Results(tmp_path / "kernels").add(known, rows)
    clock = Pretended()

    call(tuned(tmp_path, space={"BLOCK": [128, 64, 16, 32]}, clock=clock))

    assert tried(clock)[:2] == [128, 32]


def test_a_space_that_is_not_measured_whole_is_searched_where_similar_calls_were_fast(tmp_path, few):
    call(tuned(tmp_path, space=SPACE, effort="full"))
    clock = Pretended()
    kernel = tuned(tmp_path, space=SPACE, clock=clock)

    call(kernel, size=12)

    (decision,) = kernel.decisions.values()
    assert decision.candidates == 3
    assert set(tried(clock)) == {128, 32}, "all but the default have the block that was the fastest"

    def found(size, most):
        x = torch.zeros(size)
        case = kernel._case(Launch(kernel.fn, (x, x, size, 1.5), {}, grid, {"x_ptr": x, "y_ptr": x, "size": size}))
        (group,) = case.candidates.groups
        return case.hints(most, group)

    hinted = found(14, 3)
    assert hinted.times.shape == (2, 8) and hinted.weights[0] > hinted.weights[1], "12 is nearer than 16"
    assert math.exp(hinted.times[1].max()) == pytest.approx(5.0, rel=0.1)
    assert found(14, 8) is None, "all are measured"
    assert found(16, 3).times.shape == (1, 8)
