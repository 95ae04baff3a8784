"""What stands before a protocol is accepted if checkpoints can be kept through it, and this is found out by trying."""

from pathlib import Path

import fsspec
import pytest

from nas.training.checkpoints import delete, read, write
from nas.upkeep import fronts, leftovers
from nas.upkeep.fronts import obstacle_before

NAME = "trial-000007-rung-0"
# With fsspec 2026.9. If one of the others keeps files in a newer version, it belongs here.
ACCEPTED = {(front, place) for front in ("asyncwrapper", "async_wrapper") for place in ("file", "local", "memory")}
ACCEPTED |= {(front, place) for front in ("cached", "blockcache", "filecache") for place in ("file", "local")}
REFUSED = {(front, "memory") for front in ("cached", "blockcache", "filecache")}
REFUSED |= {("dir", place) for place in ("file", "local", "memory")}


@pytest.mark.parametrize(("front", "protocol"), sorted({*ACCEPTED, ("simplecache", "file"), ("simplecache", "memory")}))
def test_checkpoints_are_kept_through_what_is_accepted(front, protocol, tmp_path):
    assert obstacle_before([front], protocol) == ""
    folder = f"{front}::{protocol}://{tmp_path}/kept"
    written = write({"steps": 3}, folder, NAME)
    assert read(written) == {"steps": 3}
    system, path = fsspec.core.url_to_fs(folder)
    (found,) = system.ls(path, detail=True)
    assert leftovers.CHECKPOINT.fullmatch(Path(found["name"]).name)
    delete(written)
    assert not system.exists(found["name"])


@pytest.mark.parametrize(("front", "protocol"), sorted(REFUSED))
def test_what_loses_files_or_writes_them_elsewhere_is_refused(front, protocol):
    expected = f"through {front}:: fsspec cannot write, read, list and remove files of {protocol}://"
    assert obstacle_before([front], protocol) == expected


@pytest.mark.parametrize(
    ("before", "protocol"),
    [
        (["filecache"], "s3"),
        (["memory"], "file"),
        (["reference"], "memory"),
        (["generic"], "file"),
        (["simplecache", "simplecache"], "file"),
        (["asyncwrapper", "filecache"], "file"),
    ],
)
def test_what_could_only_be_tried_on_a_server_and_chains_are_refused_untried(before, protocol, monkeypatch):
    monkeypatch.setattr(fronts, "_keeps_files", None)
    assert obstacle_before(before, protocol) == "before its protocol only simplecache:: may stand, and only once"


def test_a_try_leaves_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for front, protocol in (("blockcache", "memory"), ("asyncwrapper", "file"), ("dir", "file")):
        fronts._keeps_files.cache_clear()
        obstacle_before([front], protocol)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
    assert not [path for path in fsspec.filesystem("memory").store if fronts.NAME in path]
