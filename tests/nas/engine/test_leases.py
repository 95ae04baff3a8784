"""Who holds a unit, whether it still lives, and that a lease is kept while a unit runs."""

import subprocess
import sys
import threading
import time

import pytest

from nas.engine import launch, leases
from nas.engine.loop import Search
from nas.engine.resolve import resolve
from nas.errors import NasError
from nas.report.console import Reporter
from nas.runners.inline import InlineRunner
from nas.store import TrialState
from nas.work import Progress
from searchspace.model.architecture import Architecture


def parts(owner):
    return owner.split("/")


def test_a_living_process_is_never_taken_for_dead():
    assert not leases.is_dead(leases.owner_name())
    assert leases.dead([leases.owner_name(), f"ask/{leases.owner_name()}", "somebody", ""]) == []


def test_a_process_that_is_gone_is_recognised_on_its_host():
    code = "from nas.engine.leases import owner_name; print(owner_name())"
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert leases.is_dead(owner)
    host, boot, pid, started, mark = parts(owner)
    assert not leases.is_dead("/".join(["elsewhere", boot, pid, started, mark]))
    assert not leases.is_dead("/".join([host, "another-boot", pid, started, mark]))
    assert not leases.is_dead("/".join([host, boot, "not a pid", started, mark]))


def test_a_child_that_ended_and_was_not_waited_for_is_dead():
    code = "from nas.engine.leases import owner_name; print(owner_name(), flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    owner = child.stdout.readline().strip()
    while not leases.is_dead(owner):  # a zombie from the moment it ends
        time.sleep(0.05)
    assert child.poll() == 0
    child.stdout.close()


def test_a_unit_that_runs_longer_than_its_lease_keeps_it(describe, table):
    config = describe(budget="{trials: 2}")
    store = launch.open_for(config)
    study = launch.enter(store, resolve(config, store))
    stolen = []

    def slow(work, progress=None):
        time.sleep(1.2)
        stolen.extend(store.lease(study.id, "thief", 5, 60))
        return table(work)

    reporter = Reporter(store, study, budget=2, objective="loss", quiet=True)
    Search(config, store, study, InlineRunner(slow), reporter, lease_seconds=0.6).run()
    trials = store.trials(study.id)
    store.close()
    assert stolen == [] and [trial.state for trial in trials] == [TrialState.COMPLETE] * 2


def test_the_progress_of_a_unit_is_written_with_its_lease(describe, table):
    config = describe(budget="{trials: 1}")
    with launch.open_for(config) as store:
        study = launch.enter(store, resolve(config, store))
        seen = []

        def slow(work, progress):
            progress(Progress(step=3, steps=10, loss=2.5, tokens_per_second=100.0))
            end = time.monotonic() + 20
            while not seen or seen[-1][0] is None:
                assert time.monotonic() < end
                time.sleep(0.05)
                unit = store.units(study.id, 0)[0]
                seen.append((unit.progress_step, unit.progress_loss, unit.progress_rate))
            return table(work)

        reporter = Reporter(store, study, budget=1, objective="loss", quiet=True)
        Search(config, store, study, InlineRunner(slow), reporter, lease_seconds=0.3).run()
        assert seen[-1] == (3, 2.5, 100.0)
        assert store.units(study.id, 0)[0].progress_step is None  # it ended


def test_the_leases_of_another_host_are_taken_over_when_they_run_out(describe, search, record):
    config = describe(budget="{trials: 3}")
    store = launch.open_for(config)
    study = launch.enter(store, resolve(config, store))
    whole = record(search(config))
    again = describe(budget="{trials: 4}")
    other = Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 256\nbody: attention")
    store.add_trial(
        study.id,
        3,
        (other.hash, other.text()),
        seed=0,
        purpose="search",
        operator="random",
        choices={},
        known_results=3,
        steps=10,
        owner="elsewhere/boot/1/2/3",
        lease_seconds=0.5,
    )
    assert record(search(again))[:3] == whole
    assert store.trial(study.id, 3).state is TrialState.COMPLETE
    store.close()


def test_a_heartbeat_that_ends_stops_the_search(describe, table):
    config = describe(budget="{trials: 2}")
    with launch.open_for(config) as store:
        study = launch.enter(store, resolve(config, store))

        class Broken(InlineRunner):
            def progress(self):
                if threading.current_thread().name == "leases":
                    raise ZeroDivisionError("what no one expected")
                return super().progress()

        def slow(work, progress=None):
            time.sleep(0.5)
            return table(work)

        reporter = Reporter(store, study, budget=2, objective="loss", quiet=True)
        with pytest.raises(NasError, match="could not be renewed: ZeroDivisionError: what no one expected"):
            Search(config, store, study, Broken(slow), reporter, lease_seconds=0.3).run()


def test_the_heartbeat_renews_what_is_held_and_ends_when_it_is_closed(describe):
    config = describe()
    with launch.open_for(config) as store:
        launch.enter(store, resolve(config, store))
        heartbeat = leases.Heartbeat(store, "me", 0.3)
        heartbeat.hold(1)
        heartbeat.hold(2)
        heartbeat.drop(1)
        assert heartbeat.held() == [2]
        heartbeat.close()
    assert "leases" not in {thread.name for thread in threading.enumerate()}
