"""A checkpoint is whole, known by its hash, or known to be lost."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest
import torch

from nas.errors import NasError
from nas.training import checkpoints, untrusted
from nas.training.checkpoints import CheckpointLost
from nas.work import Checkpoint

STATE = {"model": {"weight": torch.arange(6.0).view(2, 3)}, "step": 7}


@pytest.fixture(params=["folder", "url"])
def folder(request, tmp_path):
    return str(tmp_path / "deep" / "folder") if request.param == "folder" else f"memory://{tmp_path.name}/folder"


def test_what_is_written_is_read(folder):
    written = checkpoints.write(STATE, folder, "unit")
    state = checkpoints.read(written)
    assert state["step"] == 7
    assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])
    assert torch.equal(checkpoints.weights(written)["weight"], STATE["model"]["weight"])
    assert written.sha256[:16] in written.uri


def test_the_same_state_has_the_same_name_and_nothing_else_is_left(tmp_path):
    first, second = (checkpoints.write(STATE, str(tmp_path), "unit") for _ in range(2))
    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == [Path(first.uri).name]


def test_a_deleted_checkpoint_is_lost(folder):
    written = checkpoints.write(STATE, folder, "unit")
    checkpoints.delete(written)
    checkpoints.delete(written)
    with pytest.raises(CheckpointLost, match="cannot be read"):
        checkpoints.read(written)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_checkpoint_is_lost(damage, tmp_path):
    written = checkpoints.write(STATE, str(tmp_path), "unit")
    data = bytearray(Path(written.uri).read_bytes())
    data[len(data) // 2] ^= 1
    Path(written.uri).write_bytes({"flip": data, "cut": data[:100], "empty": b""}[damage])
    with pytest.raises(CheckpointLost, match="is damaged: its SHA-256 is"):
        checkpoints.read(written)


class Trap:
    """Unpickled, it would create a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def test_reading_runs_no_code(tmp_path):
    written = checkpoints.write({"model": Trap(str(tmp_path / "ran"))}, str(tmp_path), "unit")
    with pytest.raises(CheckpointLost, match="cannot be understood"):
        checkpoints.read(written)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_no_checkpoint_is_lost(tmp_path):
    (tmp_path / "text.pt").write_bytes(b"hello")
    sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    with pytest.raises(CheckpointLost, match="cannot be understood"):
        checkpoints.read(Checkpoint(str(tmp_path / "text.pt"), sha256))
    with pytest.raises(CheckpointLost, match="cannot be read"):
        checkpoints.read(Checkpoint(str(tmp_path / "none.pt"), sha256))


def test_a_full_disk_is_said_and_leaves_nothing_half_written(monkeypatch, tmp_path):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(NasError, match=r"cannot be written: .*No space left"):
        checkpoints.write(STATE, str(tmp_path), "unit")
    assert list(tmp_path.iterdir()) == []


def stored(data: bytes, tmp_path: Path) -> Checkpoint:
    """A checkpoint whose recorded hash is that of the file: the database was forged too."""
    (tmp_path / "unit.pt").write_bytes(data)
    return Checkpoint(str(tmp_path / "unit.pt"), hashlib.sha256(data).hexdigest())


def members(state: object) -> dict[str, bytes]:
    """The members of the zip file that `torch.save` writes."""
    torch.save(state, buffer := io.BytesIO())
    with zipfile.ZipFile(buffer) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(content: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", compression) as file:
        for name, data in content.items():
            file.writestr(name, data)
    return buffer.getvalue()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    bomb = zipped(members({"model": {"weight": torch.zeros(2**22)}}), zipfile.ZIP_DEFLATED)
    assert len(bomb) < 2**17  # and it would unpack to 16 MiB
    with pytest.raises(CheckpointLost, match="is compressed"):
        checkpoints.read(stored(bomb, tmp_path))


def test_members_that_share_their_bytes_are_refused(tmp_path):
    data = bytearray(zipped(members({"a": torch.zeros(2**16), "b": torch.ones(2**16), "c": torch.ones(2**16)})))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        first, *others = [each for each in file.infolist() if "/data/" in each.filename]
    directory = data.rindex(b"PK\5\6")
    start = int.from_bytes(data[directory + 16 : directory + 20], "little")
    place = start
    while data[place : place + 4] == b"PK\1\2":  # every entry of the directory points to the first member
        name, extra, comment = (int.from_bytes(data[place + at : place + at + 2], "little") for at in (28, 30, 32))
        if b"/data/" in data[place + 46 : place + 46 + name]:
            data[place + 42 : place + 46] = first.header_offset.to_bytes(4, "little")
        place += 46 + name + extra + comment
    cut = data[: others[0].header_offset] + data[start:]  # the bytes of the others are left out
    end = cut.rindex(b"PK\5\6")
    cut[end + 16 : end + 20] = others[0].header_offset.to_bytes(4, "little")
    with pytest.raises(CheckpointLost, match="together they are larger than the file"):
        checkpoints.read(stored(bytes(cut), tmp_path))


class Buffer:
    """Unpickled, it is a buffer of a gigabyte."""

    def __reduce__(self):
        return bytearray, (2**30,)


def lists(depth: int) -> list:
    """2 ** depth values in a few bytes: every list holds the next one twice."""
    found: list = [0, 0]
    for _ in range(depth):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"model": Buffer()}, "names '__builtin__ bytearray'"),
        ({"optimiser": lists(40)}, "more than 1,000,000 values"),
        ({"model": {"weight": torch.zeros(1).expand(2**40)}}, "repeats its few values"),
    ],
    ids=["a large buffer", "lists in lists", "an expanded tensor"],
)
def test_a_pickle_bomb_is_refused(state, why, tmp_path):
    torch.save(state, buffer := io.BytesIO())
    with pytest.raises(CheckpointLost, match=why):
        checkpoints.read(stored(buffer.getvalue(), tmp_path))


def test_the_older_format_that_allocates_what_it_is_told_is_refused(tmp_path):
    torch.save(STATE, buffer := io.BytesIO(), _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointLost, match=r"not a file of torch\.save"):
        checkpoints.read(stored(buffer.getvalue(), tmp_path))


def test_devices_pipes_and_files_larger_than_the_memory_are_not_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.pt")
    (tmp_path / "device.pt").symlink_to("/dev/zero")
    for name in ("pipe.pt", "device.pt"):
        with pytest.raises(CheckpointLost, match="it is not a regular file"):
            checkpoints.read(Checkpoint(str(tmp_path / name), "0"))
    written = checkpoints.write(STATE, str(tmp_path), "unit")
    monkeypatch.setattr(untrusted, "_memory", lambda: 1000)
    with pytest.raises(CheckpointLost, match="more than 500 bytes, half of the memory"):
        checkpoints.read(written)
