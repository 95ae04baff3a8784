"""All threads of the process are on one core inside the block, and where they were after it."""

import os
import threading

import pytest

from tuner.measure import core
from tuner.measure.core import THREADS, one_core

pytestmark = pytest.mark.skipif(not THREADS.is_dir(), reason="only Linux can move running threads")


def _cores():
    return {int(each.name): frozenset(os.sched_getaffinity(int(each.name))) for each in THREADS.iterdir()}


@pytest.fixture
def waiting():
    """A second thread, until the end of the test."""
    ends, begun = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (begun.set(), ends.wait()))
    thread.start()
    begun.wait()
    yield thread
    ends.set()
    thread.join()


def test_all_threads_are_on_one_core_and_go_back(waiting):
    before = _cores()
    with one_core():
        inside = _cores()
    assert waiting.native_id in inside and set(inside.values()) == {next(iter(inside.values()))}
    assert len(next(iter(inside.values()))) == 1
    after = _cores()
    assert {each: after[each] for each in before.keys() & after} == {
        each: before[each] for each in before.keys() & after
    }


def test_a_thread_that_starts_inside_is_free_after_the_block():
    ends = threading.Event()
    with one_core():
        thread = threading.Thread(target=ends.wait)
        thread.start()
    assert os.sched_getaffinity(thread.native_id) == os.sched_getaffinity(0)
    ends.set()
    thread.join()


class System:
    """Two threads that may use two cores each. When one is free again, the other starts a third one."""

    def __init__(self, folder):
        self.folder, self.cores = folder, {}
        self.start(1, {0, 1})
        self.start(2, {0, 1})

    def start(self, thread, cores):
        self.cores[thread] = set(cores)
        (self.folder / str(thread)).touch()

    def sched_getaffinity(self, thread):
        return self.cores[thread]

    def sched_setaffinity(self, thread, cores):
        self.cores[thread] = set(cores)
        if len(cores) == 2 and 3 not in self.cores:
            self.start(3, self.cores[3 - thread])


def test_a_thread_that_starts_while_the_block_ends_is_free_too(tmp_path, monkeypatch):
    system = System(tmp_path)
    monkeypatch.setattr(core, "THREADS", tmp_path)
    monkeypatch.setattr(core, "os", system)
    monkeypatch.setattr(core.threading, "get_native_id", lambda: 1)
    with one_core():
        assert system.cores == {1: {min(system.cores[1])}, 2: system.cores[1]}
    assert system.cores == {1: {0, 1}, 2: {0, 1}, 3: {0, 1}}


def test_each_thread_goes_back_to_its_own_cores(tmp_path, monkeypatch):
    system = System(tmp_path)
    system.start(2, {1})
    system.start(3, {0, 1, 2})
    before = dict(system.cores)
    monkeypatch.setattr(core, "THREADS", tmp_path)
    monkeypatch.setattr(core, "os", system)
    monkeypatch.setattr(core.threading, "get_native_id", lambda: 1)
    with one_core():
        assert len(set(map(frozenset, system.cores.values()))) == 1
    assert system.cores == before


def test_a_process_with_one_core_stays_there():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with one_core():
            assert os.sched_getaffinity(0) == {min(before)}
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
