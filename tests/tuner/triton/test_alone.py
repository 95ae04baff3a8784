"""Threads and processes that call one kernel: one of them tunes, and the others wait or use the default."""

import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tuner.triton import alone

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


def test_a_process_waits_for_the_one_that_tunes(tmp_path, monkeypatch):
    first = tuned(tmp_path)
    kernel = tuned(tmp_path, clock=Pretended({}))
    real = alone.alone

    @contextmanager
    def waits(what, longest=None):
        call(first)  # another process tunes meanwhile
        with real(f"{what}, another"):
            yield True

    monkeypatch.setattr("tuner.triton.tuned_kernel.alone", Once(waits, real))
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 32}


class Once:
    """The first call goes to one function, the others to another."""

    def __init__(self, first, others):
        self.first, self.others = first, others

    def __call__(self, what, longest=None):
        now, self.first = self.first, self.others
        return now(what, longest)


def test_only_one_process_is_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(alone, "_file", lambda what: Path(tmp_path / "lock"))
    with alone.alone("it") as waited:
        assert waited is False
        with alone.alone("it", longest=0.0) as second:
            assert second is None, "it gave up waiting"
        assert (tmp_path / "lock").exists(), "the second one held nothing"
    assert not (tmp_path / "lock").exists()
    with alone.alone("it") as waited:
        assert waited is False


def test_a_lock_that_another_process_deletes_meanwhile_is_not_held(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    lock, real, deleted = tmp_path / "lock", fcntl.flock, []

    def flock(handle, how):
        if not deleted:
            deleted.append(lock.unlink())
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(alone, "_file", lambda what: lock)
    with alone.alone("it") as waited:
        assert waited is True
        with alone.alone("it", longest=0.0) as second:
            assert second is None


def test_a_lock_that_cannot_be_opened_makes_no_call_fail(tmp_path, monkeypatch):
    (tmp_path / "lock").mkdir()  # of another user, or a link
    for place in (tmp_path / "lock", tmp_path / "nowhere" / "lock"):
        monkeypatch.setattr(alone, "_file", lambda what, place=place: place)
        with alone.alone("it") as waited:
            assert waited is False
