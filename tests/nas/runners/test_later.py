"""A runner that starts with its first unit, and is that runner from then on."""

from nas.runners.inline import InlineRunner
from nas.runners.later import LaterRunner
from nas.work import Outcome, Work

WORK = Work(study="s", trial=3, rung=0, architecture="", task={}, recipe={}, steps=1, horizon=1, seed=0)


def test_it_starts_with_its_first_unit_only():
    class Four(InlineRunner):
        workers, capacity, isolates = 4, 5, False

    def start():
        started.append(Four(lambda work, progress: Outcome(trial=work.trial, rung=0, seconds=1.0)))
        return started[-1]

    started: list[Four] = []
    later = LaterRunner(start)
    assert (later.workers, later.capacity, later.isolates) == (1, 1, True)
    assert later.wait(0) == [] and later.interrupt(0) == [] and not later.progress()
    later.stop_soon()
    later.close()
    assert not started
    for _ in range(2):
        later.submit(WORK)
        assert (later.workers, later.capacity, later.isolates) == (4, 5, False)
    assert [each.trial for each in later.wait(0)] == [3] and later.wait(0) and not later.progress()
    later.submit(WORK)
    assert later.interrupt(0) == [] and later.wait(0) == []
    later.close()
    assert len(started) == 1
