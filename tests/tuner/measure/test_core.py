"""All threads of the process are on one core inside the block, and where they were after it."""

import os
import threading

import pytest

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


def test_a_process_with_one_core_stays_there():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with one_core():
            assert os.sched_getaffinity(0) == {min(before)}
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
