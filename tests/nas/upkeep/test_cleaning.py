"""What the end of a search and `nas clean` remove, and what they never touch."""

import dataclasses
import errno
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from nas.backup import backup
from nas.engine import launch, leases
from nas.errors import DiskFull, NasError
from nas.exports import winner
from nas.runners.inline import InlineRunner
from nas.store import open_reader
from nas.upkeep import cleaning, leftovers
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


def test_a_file_that_another_process_removes_while_it_is_measured_is_passed_over(kept, tmp_path, monkeypatch):
    def gone(path):
        raise FileNotFoundError(path)

    session = tmp_path / "session_1"
    monkeypatch.setattr(leftovers, "ray_sessions", lambda: [session])
    with kept("all") as result:
        session.mkdir()
        (session / "worker.log").write_bytes(b"log")
        monkeypatch.setattr(Path, "lstat", gone)
        found = cleaning.clean(result.store, result.study, tmp_path, dry_run=True)
    assert [(each.kind, each.size) for each in found] == [("Ray session", 0)]


def test_a_search_ends_although_its_checkpoints_cannot_be_reached_any_more(kept, monkeypatch):
    def fails(url):
        raise RuntimeError("No route to the host")

    monkeypatch.setattr(cleaning.fsspec.core, "url_to_fs", fails)
    with kept("last") as result:
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


def test_a_study_of_an_earlier_version_keeps_all_of_its_checkpoints(kept, describe):
    with kept("all") as result:
        store, study = result.store, result.study
        store.update_study(study.id, config={key: value for key, value in study.config.items() if key != "keep"})
    before = rungs(kept.folder)
    with kept() as result:
        assert result.study.config["keep"] == "all"
    assert rungs(kept.folder) == before


def test_checkpoints_of_trials_and_of_finals_are_recognised():
    for name in ("trial-000003-rung-1-0123456789abcdef.pt", "final-000002-rung-0-0123456789abcdef.pt"):
        assert leftovers.CHECKPOINT.fullmatch(name)
        assert leftovers.UNFINISHED.fullmatch(f"{name}.77-0a1b2c3d.unfinished")
    assert not leftovers.CHECKPOINT.fullmatch("my-final-000002-rung-0-0123456789abcdef.pt")


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


def test_an_older_copy_of_a_study_leaves_its_files_to_the_newer_database(kept, tmp_path):
    """By the copy's front, trials that are on the front today would lose their checkpoints."""
    with kept("best") as result:
        original, copy = Path(result.config.storage.removeprefix("sqlite:///")), tmp_path / "older.db"
    backup(original, copy)
    with sqlite3.connect(copy) as connection:  # when it was made, other trials were the best
        connection.execute("UPDATE study SET sequence = sequence - 1")
        connection.execute("UPDATE objective_value SET value = -value WHERE name = 'loss'")
    connection.close()
    before = rungs(kept.folder)
    for file, expected in ((copy, original), (original, None)):
        with open_reader(str(file)) as store:
            study = store.study("tried")
            assert cleaning.newer_database(store, study) == expected
            assert not [each for each in cleaning.clean(store, study, tmp_path / "cache") if each.kind == "checkpoint"]
    assert rungs(kept.folder) == before


def test_a_copy_that_went_on_by_itself_keeps_what_it_names(kept, tmp_path):
    with kept("all") as result:
        store, study = result.store, result.study
        other = tmp_path / "other.db"
        backup(Path(result.config.storage.removeprefix("sqlite:///")), other)
        store.update_study(study.id, config={**study.config, "keep": "best"})
    with sqlite3.connect(other) as connection:  # as many results, one of them with a checkpoint of its own
        connection.execute("UPDATE unit SET checkpoint_uri = ? WHERE sequence = 9", (str(kept.folder / "its.pt"),))
        named = {uri for (uri,) in connection.execute("SELECT checkpoint_uri FROM unit")}
    connection.close()
    with open_reader(result.config.storage) as store:
        study = store.study("tried")
        assert not named & {each.place for each in cleaning.clean(store, study, tmp_path / "cache")}
        other.unlink()
        assert named & {each.place for each in cleaning.clean(store, study, tmp_path / "cache")}


def test_the_state_of_an_interrupted_unit_stays_while_a_study_of_this_name_runs_elsewhere(kept, describe, tmp_path):
    with kept("all") as result:
        study = result.study
    state = old(kept.folder / f"partial-{'0' * 32}-{'1' * 16}.pt")
    config = describe(storage="").model_copy(update={"storage": f"sqlite:///{tmp_path}/other.db"})
    with launch.open_for(config) as other:
        made = launch.enter(other, config)
        given = {"purpose": "search", "operator": "random", "choices": {}, "known_results": 0}
        other.add_trial(made.id, 0, ("0" * 64, "text"), seed=0, steps=2, **given)
    with open_reader(result.config.storage) as store:
        cleaning.clean(store, study, tmp_path / "cache")
    assert state.exists()


def test_what_lies_near_and_is_no_database_of_ours_does_not_matter(kept, tmp_path):
    created = "CREATE TABLE study (id, name, created_at, sequence)"
    for name, statements in {
        "empty": [],
        "foreign": ["CREATE TABLE bookmarks (url)"],
        "columns": ["CREATE TABLE study (name)"],
        "values": [created, "INSERT INTO study VALUES (1, 'tried', 'soon', 'many')"],
    }.items():
        with sqlite3.connect(tmp_path / f"{name}.db") as connection:
            for each in statements:
                connection.execute(each)
        connection.close()
    (tmp_path / "text.db").write_text("a diary\n" * 1000)
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "loop.db").symlink_to("loop.db")
    os.mkfifo(tmp_path / "pipe.db")
    with kept("best") as result:  # its end cleans
        assert cleaning.newer_database(result.store, result.study) is None
        assert cleaning.checkpoint_files(result.store, result.study)


def test_only_ray_sessions_of_searches_that_have_ended_are_removed(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", "from nas.engine import leases; print(leases.owner_name())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    parent = leases.owner_name().replace(f"/{os.getpid()}/", f"/{os.getppid()}/")
    parent = "/".join([*parent.split("/")[:3], leases._started(os.getppid()), "0"])
    for name, owner in (("ours", ended), ("runs", parent), ("foreign", None)):
        folder = tmp_path / f"session_{name}"
        (folder / "logs").mkdir(parents=True)
        if owner:
            (folder / leftovers.RAY_MARK).write_text(json.dumps({"owner": owner}))
    (tmp_path / "session_latest").symlink_to(tmp_path / "session_ours")

    for each in list(leftovers.ray_sessions(tmp_path)):
        leftovers.remove_session(each)

    assert sorted(each.name for each in tmp_path.iterdir()) == ["session_foreign", "session_runs"]


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
        assert [each.name for each in leftovers.prepared(tmp_path)] == ["two.unfinished"]
