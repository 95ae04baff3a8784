"""In a distributed job one rank decides for all."""

import threading
from datetime import timedelta

import pytest
import torch

from kernels.dispatch.registry import Choice
from tuner.triton import alone, ranks

triton = pytest.importorskip("triton")
distributed = pytest.importorskip("torch.distributed")

from scaled_kernel import Pretended, allowed, grid, tuned  # noqa: E402, F401

CHOICE = Choice.of("triton", {"BLOCK": 32})


def agreed(shared, find, use=lambda choice: choice, **more):
    return ranks.agreed(shared, "a call", find, lambda found: found, use, **more)


def test_the_ranks_wait_for_the_first_and_use_its_choice():
    shared, asked, found = distributed.HashStore(), threading.Event(), []

    def tune():
        asked.set()
        return CHOICE

    ranks_of_a_job = [threading.Thread(target=lambda: found.append(agreed(shared, tune))) for _ in range(4)]
    for each in ranks_of_a_job:
        each.start()
    for each in ranks_of_a_job:
        each.join()

    assert asked.is_set() and found == [CHOICE] * 4


def test_a_rank_decides_for_itself_if_the_first_fails_is_late_or_chose_something_unknown():
    other = Choice.of("triton", {"BLOCK": 64})
    shared = distributed.HashStore()

    def fails():
        raise RuntimeError("no device")

    with pytest.raises(RuntimeError, match="no device"):
        agreed(shared, fails)
    assert agreed(shared, lambda: other) == other

    shared = distributed.HashStore()
    assert agreed(shared, lambda: agreed(shared, lambda: other, longest=0.01)) == other, "the first is late"
    assert agreed(shared, lambda: CHOICE, use=lambda choice: None) == CHOICE, "it is not in this rank's space"


def test_a_kernel_asks_the_job(tmp_path, monkeypatch):
    shared = distributed.HashStore()
    monkeypatch.setattr(ranks, "store", lambda: shared)
    first = tuned(tmp_path, cache_results=False)
    second = tuned(tmp_path, cache_results=False, clock=(clock := Pretended({})))
    arguments = torch.arange(16.0), torch.zeros(16), 16, 1.5

    assert first.warm(*arguments, grid=grid).config.kwargs == {"BLOCK": 32}
    assert second.warm(*arguments, grid=grid).why == "another rank chose it"
    assert second.cache.values() and not clock.calls


def test_a_rank_that_forgets_measures_again(tmp_path, monkeypatch):
    shared = distributed.HashStore()
    monkeypatch.setattr(ranks, "store", lambda: shared)
    kernel = tuned(tmp_path, clock=(clock := Pretended()))
    arguments = torch.arange(16.0), torch.zeros(16), 16, 1.5
    assert kernel.warm(*arguments, grid=grid).config.kwargs == {"BLOCK": 32}
    clock.speed[128] = 0.1
    kernel.forget()
    assert kernel.warm(*arguments, grid=grid).config.kwargs == {"BLOCK": 128}


def test_a_kernel_waits_once_for_a_rank_that_is_late(tmp_path, monkeypatch):
    """Neither the rank nor the process that holds the lock comes to an end."""
    shared, waits = distributed.HashStore(), []
    wait, holding = shared.wait, alone.holding

    class Late:
        def add(self, key, amount):
            return 2

        def wait(self, keys, longest):
            waits.append(longest.total_seconds())
            wait(keys, timedelta(seconds=0.001))

    def held(file, longest, **options):
        waits.append(longest)
        return holding(file, 0.0, **options)

    monkeypatch.setattr(ranks, "store", Late)
    monkeypatch.setattr(alone, "holding", held)
    monkeypatch.setattr(alone, "_file", lambda what: tmp_path / "lock")
    kernel = tuned(tmp_path)
    arguments = torch.arange(16.0), torch.zeros(16), 16, 1.5
    with holding(tmp_path / "lock", 0.0):
        for _ in range(3):
            assert "another process is tuning it" in kernel.warm(*arguments, grid=grid).why
    assert waits == [ranks.LONGEST, *[0.0, ranks.SHORTEST] * 2, 0.0], "it waits once, then only looks"
    assert kernel.warm(*arguments, grid=grid).config.kwargs == {"BLOCK": 32}


class Broken:
    """The store of a job whose other ranks have ended."""

    def __init__(self, answers):
        self.answers = answers

    def add(self, key, amount):
        if not self.answers:
            raise distributed.DistNetworkError("failed to recv, got 0 bytes")
        return 1

    def set(self, key, value):
        raise distributed.DistNetworkError("Broken pipe")


@pytest.mark.parametrize("answers", [False, True], ids=["at once", "later"])
def test_a_store_of_the_job_that_breaks_makes_no_call_fail(answers):
    assert agreed(Broken(answers), lambda: CHOICE) == CHOICE


def test_a_process_outside_of_a_job_asks_nobody():
    assert not distributed.is_initialized() and ranks.store() is None
    assert torch.distributed.is_available()
