"""Threads and processes that call one kernel: one of them tunes, and the others wait or use the default."""

import threading

import pytest
import torch

from tuner.triton import kernel as tuned_kernel
from tuner.triton.kernel import _alone

pytest.importorskip("triton")

from scaled_kernel import Pretended, allowed, call, grid, tuned  # noqa: F401


def test_four_threads_tune_once(tmp_path):
    clock = Pretended()
    kernel = tuned(tmp_path, clock=clock, cache_results=False)
    found = []

    def warm():  # without a launch: Triton's interpreter cannot launch in several threads at once
        found.append(kernel.warm(torch.arange(16.0), torch.zeros(16), 16, 1.5, grid=grid).config)

    threads = [threading.Thread(target=warm) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(kernel.decisions) == 1 and clock.calls.count(128) <= 8
    assert len(found) == 4 and len(set(map(id, found))) == 1


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """The file of all locks of this test."""
    monkeypatch.setattr(tuned_kernel, "_lock_file", lambda what: tmp_path / "lock")
    return tmp_path / "lock"


def test_a_call_does_not_wait_for_long_for_another_process_that_tunes(tmp_path, lock, monkeypatch):
    monkeypatch.setattr(tuned_kernel, "WAIT", 0.05)
    kernel, clock = tuned(tmp_path, clock=Pretended({})), Pretended()
    with _alone("it", 0.0) as waited:
        assert waited is False
        call(kernel)
        assert kernel.best_config.kwargs == {"BLOCK": 16}
    call(tuned(tmp_path, clock=clock))
    call(kernel)
    assert clock.calls and kernel.best_config.kwargs == {"BLOCK": 32}, "the result of the other process serves"


def test_only_one_process_is_alone_and_a_lock_that_cannot_be_opened_makes_no_call_fail(lock, monkeypatch):
    with _alone("it", 0.0) as waited, _alone("it", 0.0) as second:
        assert (waited, second) == (False, None)
    assert not lock.exists()
    with _alone("it", 0.0) as waited:
        assert waited is False
    for place in (lock.parent, lock.parent / "nowhere" / "lock"):
        monkeypatch.setattr(tuned_kernel, "_lock_file", lambda what, place=place: place)
        with _alone("it", 0.0) as waited:
            assert waited is False
