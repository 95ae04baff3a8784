"""What the end of a search and `nas clean` remove, and what they never touch."""

import dataclasses
import errno
import hashlib
import os
import sqlite3
from pathlib import Path

import pytest

from nas.backup import backup
from nas.engine import launch
from nas.errors import DiskFull, NasError
from nas.exports import winner
from nas.runners.inline import InlineRunner
from nas.store import open_reader
from nas.upkeep import cleaning
from nas.upkeep.disk import Disks
from nas.work import Checkpoint

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


def old(path: Path) -> Path:
    """A file that was not changed for long."""
    path.write_bytes(b"half")
    os.utime(path, (0, 0))
    return path


@pytest.fixture
def kept(describe, table, tmp_path):
    """`kept(keep)`: the search of this file with checkpoints, which its units write."""
    folder = tmp_path / "tried"

    def unit(work, progress=None):
        data = f"{work.trial}/{work.rung}".encode()
        sha256 = hashlib.sha256(data).hexdigest()
        path = Path(work.checkpoint) / f"trial-{work.trial:06d}-rung-{work.rung}-{sha256[:16]}.pt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return dataclasses.replace(table(work), checkpoint=Checkpoint(str(path), sha256))

    def made(keep: str | None = None, run=unit, **changes):
        config = describe(scheduler=HALVING, budget="{trials: 8}", **changes)
        config = config.model_copy(update={"checkpoints": str(folder)} | ({"keep": keep} if keep else {}))
        return launch.search(config, quiet=True, runner=InlineRunner(run))

    made.folder, made.unit = folder, unit
    return made


def rungs(folder: Path) -> list[tuple[int, int]]:
    """(trial, rung) of the checkpoints in a folder."""
    return sorted((int(each.name.split("-")[1]), int(each.name.split("-")[3])) for each in folder.glob("trial-*.pt"))


def test_a_search_ends_although_its_checkpoints_cannot_be_reached_any_more(kept, monkeypatch):
    def fails(url):
        raise RuntimeError("No route to the host")

    def unit(work, progress=None):
        monkeypatch.setattr(cleaning.fsspec.core, "url_to_fs", fails)
        return kept.unit(work)

    with kept("last", unit) as result:
        assert result.best is not None
        with pytest.raises(NasError, match=r"cannot be used: RuntimeError: No route to the host\."):
            cleaning.clean(result.store, result.study, kept.folder)


def test_a_search_keeps_the_last_checkpoint_of_every_trial(kept):
    with kept() as result:
        trials = result.store.trials(result.study.id)
        assert result.store.study("tried").config["keep"] == "last"
    assert rungs(kept.folder) == sorted((each.number, each.rung) for each in trials)


def test_best_keeps_the_front_and_an_export_of_another_trial_says_so(kept):
    with kept("best") as result:
        trials = result.store.trials(result.study.id)
        front = {each.number for each in result.front}
        other = next(each.number for each in trials if each.number not in front)
        with pytest.raises(NasError, match="keep: last"):
            winner.winner(result.store, result.study, other).weights()
    assert rungs(kept.folder) == sorted((each.number, each.rung) for each in trials if each.number in front)


def test_all_keeps_every_checkpoint(kept):
    with kept("all") as result:
        units = result.store.results_since(result.study.id)
    assert rungs(kept.folder) == sorted((each.number, each.rung) for each in units)


def test_checkpoints_of_trials_and_of_finals_are_recognised():
    for name in ("trial-000003-rung-1-0123456789abcdef.pt", "final-000002-rung-0-0123456789abcdef.pt"):
        assert cleaning.CHECKPOINT.fullmatch(name)
        assert cleaning.UNFINISHED.fullmatch(f"{name}.77-0a1b2c3d.unfinished")
    assert not cleaning.CHECKPOINT.fullmatch("my-final-000002-rung-0-0123456789abcdef.pt")


def test_clean_removes_unfinished_files_and_nothing_that_a_user_made(kept, tmp_path):
    with kept("all") as result:
        study = result.study
    name = "trial-000003-rung-0-0123456789abcdef.pt"
    stale = old(kept.folder / f"{name}.77-0a1b2c3d.unfinished")
    state = old(kept.folder / f"partial-{'0' * 32}-{'1' * 16}.pt")
    fresh = kept.folder / f"{name}.78.unfinished"
    fresh.write_bytes(b"being written")
    own = [old(kept.folder / each) for each in ("notes.txt", "my-trial.pt", name, "copy.unfinished", "trial-1.pt")]
    with open_reader(result.config.storage) as store:
        listed = cleaning.clean(store, study, tmp_path / "cache", dry_run=True)
        assert stale.exists()
        removed = cleaning.clean(store, study, tmp_path / "cache")
    assert {each.place for each in listed} == {each.place for each in removed} == {str(stale), str(state)}
    assert not stale.exists() and not state.exists() and all(each.exists() for each in (fresh, *own))
    assert "2" not in cleaning.summary(removed)


def test_the_state_of_an_interrupted_unit_stays_while_the_study_has_open_units(kept, tmp_path):
    with kept("all") as result:
        store, study = result.store, result.study
        given = {"purpose": "search", "operator": "random", "choices": {}, "known_results": 0}
        store.add_trial(study.id, store.next_number(study.id), ("0" * 64, "text"), seed=0, steps=2, **given)
        state = old(kept.folder / f"partial-{'0' * 32}-{'1' * 16}.pt")
        cleaning.clean(store, study, tmp_path / "cache")
    assert state.exists()


def test_a_copy_of_a_database_leaves_the_checkpoints_to_the_original(kept, tmp_path):
    """By the copy's front, trials that are on the front today would lose their checkpoints."""
    with kept("best") as result:
        original, copy = Path(result.config.storage.removeprefix("sqlite:///")), tmp_path / "copy.db"
    backup(original, copy)
    with sqlite3.connect(copy) as connection:  # it went on by itself, and other trials are the best
        connection.execute("UPDATE objective_value SET value = -value WHERE name = 'loss'")
    connection.close()
    before = rungs(kept.folder)
    with open_reader(copy) as store:
        study = store.study("tried")
        assert cleaning.folders(store, study) == ([], [str(kept.folder)])
        assert not [each for each in cleaning.clean(store, study, tmp_path / "cache") if each.kind == "checkpoint"]
        assert cleaning.checkpoint_files(store, study) == [] and rungs(kept.folder) == before
        original.rename(tmp_path / "moved.db")  # then nothing tells the two apart, and this one may be the original
        assert [each for each in cleaning.clean(store, study, tmp_path / "cache") if each.kind == "checkpoint"]


def test_a_search_whose_checkpoint_cannot_be_written_pauses_and_goes_on(kept, monkeypatch):
    failures = iter([True, True])
    said = []
    monkeypatch.setattr("nas.upkeep.disk.FULL_SECONDS", 0.01)
    monkeypatch.setattr("nas.upkeep.disk.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("nas.engine.loop.POLL_SECONDS", 0.02)
    failed = Disks.failed
    monkeypatch.setattr(Disks, "failed", lambda self, why: said.append(why) or failed(self, why))

    def unit(work, progress=None):
        if work.trial == 2 and next(failures, False):
            raise DiskFull(os.strerror(errno.ENOSPC))
        return kept.unit(work)

    with kept(run=unit) as result:
        states = {each.state.value for each in result.store.trials(result.study.id)}
        (attempts,) = {each.released for each in result.store.units(result.study.id, 2) if each.rung == 0}
    assert len(said) == 2 and "failed" not in states and attempts == 2


def test_data_that_a_process_prepares_now_is_not_left_over(tmp_path):
    from filelock import FileLock

    for name in ("one", "two"):
        (tmp_path / f"{name}.unfinished").mkdir()
    with FileLock(tmp_path / "one.lock"):
        assert [each.name for each in cleaning._prepared(tmp_path)] == ["two.unfinished"]
