"""Checkpoints: files that are complete or absent, identified by the SHA-256 of their bytes.

They are written to a folder or to any URL that fsspec supports (`s3://bucket/folder`, `memory://folder`).
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import secrets
from pathlib import Path
from typing import Any

import fsspec
import torch
from torch import Tensor

from nas.errors import DiskFull, NasError
from nas.files import reason
from nas.training import untrusted
from nas.work import Checkpoint


class CheckpointLost(Exception):
    """A checkpoint is missing, damaged, or belongs to another model; the unit starts from scratch."""


def write(state: dict[str, Any], folder: str, name: str) -> Checkpoint:
    """Write `state` to a file in `folder`. Its name has the hash, so the same unit run twice gives the same file.

    Raises DiskFull if the disk or the quota is full, and NasError if the file cannot be written for another reason:
    neither is the fault of the architecture.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    uri = f"{folder.rstrip('/')}/{name}-{sha256[:16]}.pt"
    try:
        _put(uri, data)
    except MemoryError:
        raise
    except Exception as error:  # each kind of URL raises errors of its own
        kind = DiskFull if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) else NasError
        raise kind(f"The checkpoint {uri} ({len(data)} bytes) cannot be written: {reason(error)}.") from error
    return Checkpoint(uri, sha256)


def read(checkpoint: Checkpoint, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state in `checkpoint`. It loads plain values and tensors only, and runs no code.

    Raises CheckpointLost if the file is missing, damaged, not a checkpoint, or would need more memory than its size.
    """
    try:
        data = untrusted.content(checkpoint.uri)
    except MemoryError:
        raise
    except Exception as error:  # each kind of URL raises errors of its own
        raise CheckpointLost(f"The checkpoint {checkpoint.uri} cannot be read: {reason(error)}.") from error
    found = hashlib.sha256(data).hexdigest()
    if found != checkpoint.sha256:
        raise CheckpointLost(
            f"The checkpoint {checkpoint.uri} is damaged: its SHA-256 is {found}, expected {checkpoint.sha256}."
        )
    try:
        return untrusted.load(data, device)
    except Exception as error:  # a file that is not a checkpoint can raise anything
        raise CheckpointLost(f"The checkpoint {checkpoint.uri} cannot be understood: {error}.") from error


def weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The state dict of the model in `checkpoint`, on the CPU. Raises CheckpointLost as `read` does."""
    return read(checkpoint)["model"]


def delete(checkpoint: Checkpoint) -> None:
    """Remove the file if it exists."""
    system, path = fsspec.core.url_to_fs(checkpoint.uri)
    if system.exists(path):
        system.rm_file(path)


def _put(uri: str, data: bytes) -> None:
    """Write a file that gets its name only when it is complete."""
    system, path = fsspec.core.url_to_fs(uri)
    unfinished = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.unfinished"  # hosts that share a folder share pids
    system.makedirs(system._parent(path), exist_ok=True)
    if "file" in system.protocol:
        _put_local(Path(unfinished), Path(path), data)
    else:
        system.pipe_file(unfinished, data)
        system.mv(unfinished, path)


def _put_local(unfinished: Path, final: Path, data: bytes) -> None:
    try:
        with unfinished.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(final)
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the name also survives a power failure
    finally:
        os.close(folder)
