"""Loads checkpoints that may be hostile: only plain values and tensors, and no more memory than the size of the file.

`torch.load(weights_only=True)` runs no code. But it unpacks compressed members, makes buffers of any declared size, and
reads older formats that allocate as much as the file says. So the file is checked before it is loaded, and its content
is checked before it is used.
"""

from __future__ import annotations

import io
import os
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import torch
from torch import Tensor

CHUNK = 4 * 2**20  # bytes that are read at once
MOST_PICKLE = 64 * 2**20  # bytes of the description of the tensors: about 500,000 of them
MOST_VALUES = 1_000_000
MOST_DEPTH = 100
# All that `torch.save` writes of plain values, tensors and parameters. The types of storages have names of their own.
NAMES = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"}
NAMES |= {"torch._utils _rebuild_tensor_v3", "torch Size", "torch device", "torch.storage UntypedStorage"}


def content(uri: str) -> bytes:
    """The bytes of a regular file.

    Raises OSError if it cannot be read, ValueError if it is a device, a pipe or a folder, or too large for the memory.
    """
    system, path = fsspec.core.url_to_fs(uri)
    if "file" in system.protocol and Path(path).exists() and not Path(path).is_file():
        raise ValueError("it is not a regular file")
    most = _memory() // 2  # it is in the memory twice: as bytes and as tensors
    parts, size = [], 0
    with system.open(path, "rb") as file:
        while part := file.read(CHUNK):
            size += len(part)
            if size > most:
                raise ValueError(f"it has more than {most:,} bytes, half of the memory of this machine")
            parts.append(part)
    return b"".join(parts)


def load(data: bytes, device: torch.device | str) -> Any:
    """The content of a checkpoint. Raises ValueError, and what `torch.load` raises, if it is not one of ours."""
    _check_file(data)
    state = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    _check_values(state)
    return state


def _check_file(data: bytes) -> None:
    """Raise ValueError unless it is a zip file that unpacks to no more bytes than it has, with a plain description."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = file.infolist()
            for each in members:
                if each.compress_type != zipfile.ZIP_STORED or each.file_size != each.compress_size:
                    raise ValueError(f"its member {each.filename[:80]!r} is compressed")
            if sum(each.file_size for each in members) > len(data):
                raise ValueError("its members overlap: together they are larger than the file")
            described = [each for each in members if each.filename.endswith("/data.pkl")]
            if len(described) != 1 or described[0].file_size > MOST_PICKLE:
                raise ValueError("it needs one description data.pkl of at most 64 MiB")
            description = file.read(described[0])
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise ValueError(f"it is not a file of torch.save: {error}") from error
    _check_names(description)


def _check_names(description: bytes) -> None:
    """Raise ValueError if the pickle names anything except tensors and their parts."""
    for code, argument, _ in pickletools.genops(description):
        if code.name == "GLOBAL":
            name = str(argument)
            is_storage = name.startswith("torch ") and name.endswith("Storage") and "." not in name
            if name not in NAMES and not is_storage:
                raise ValueError(f"it names {name[:80]!r}, which is no part of a tensor")
        elif code.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"):
            raise ValueError(f"it uses the operation {code.name} of pickle")


def _check_values(state: Any) -> None:
    """Raise ValueError if there are too many values, as in lists that repeat one list, or expanded tensors."""
    left, waiting = MOST_VALUES, [(state, 0)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, Tensor):
            if value.numel() * value.element_size() > value.untyped_storage().nbytes():
                raise ValueError(f"a tensor of shape {tuple(value.shape)} repeats its few values")
        elif isinstance(value, dict | list | tuple | set):
            items = [*value, *value.values()] if isinstance(value, dict) else value
            left -= len(items)
            if left < 0 or depth > MOST_DEPTH:
                raise ValueError(f"it holds more than {MOST_VALUES:,} values, or values more than {MOST_DEPTH} deep")
            waiting += [(item, depth + 1) for item in items]


def _memory() -> int:
    """Bytes of memory of this machine; 64 GiB if that is not known."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 64 * 2**30
