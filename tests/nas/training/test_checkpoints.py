"""A checkpoint is whole, known by its hash, or known to be lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from nas.errors import NasError
from nas.training import checkpoints
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
