"""Which protocols of fsspec may stand before another one in a URL of checkpoints, such as `filecache::file:///x`.

Some of them only read, some lose files, and some write them elsewhere; this depends on the protocol behind them and on
the version of fsspec. So it is tried with a small file. That needs no server if the files lie on this machine.
"""

from __future__ import annotations

import tempfile
from functools import cache
from uuid import uuid4

FRONT = "simplecache"  # the only one through which every protocol writes a file and reads it again
LOCAL = ("file", "local")  # protocols of this machine's own folders
NAME = "trial-000000-rung-0"  # of the file that is written to try a front


def obstacle_before(fronts: list[str], protocol: str) -> str:
    """Why no checkpoints can be kept behind `fronts::protocol://`; "" if they can."""
    if fronts in ([], [FRONT]):
        return ""
    if len(fronts) > 1 or protocol not in (*LOCAL, "memory") or not _stands_before_others(fronts[0]):
        return f"before its protocol only {FRONT}:: may stand, and only once"
    if _keeps_files(fronts[0], protocol):
        return ""
    return f"through {fronts[0]}:: fsspec cannot write, read, list and remove files of {protocol}://"


def _stands_before_others(front: str) -> bool:
    """Whether fsspec has made `front` for this; s3::file:///x, for one, would ask a server."""
    import fsspec

    try:
        from fsspec.implementations.chained import ChainedFileSystem
    except ImportError:  # fsspec is of 2025 or earlier
        return False
    return issubclass(fsspec.get_filesystem_class(front), ChainedFileSystem)


@cache
def _keeps_files(front: str, protocol: str) -> bool:
    """Whether a file behind `front::protocol://` can be written, read, found in a list and removed."""
    with tempfile.TemporaryDirectory() as folder:
        place = uuid4().hex if protocol == "memory" else folder
        try:
            return _is_kept(f"{front}::{protocol}://{place}")
        except Exception:  # each protocol has its own
            return False
        finally:
            if protocol == "memory":
                _forget(place)


def _is_kept(folder: str) -> bool:
    """Write, read, list and remove a file as a search does. Raises what fsspec and `nas.training.checkpoints` raise."""
    import fsspec

    from nas.training import checkpoints, untrusted  # not at the top, because they import torch

    written = checkpoints.write({}, folder, NAME)
    system, path = fsspec.core.url_to_fs(folder)
    listed = [each["name"] for each in system.ls(path, detail=True) if each["type"] == "file"]
    if checkpoints.read(written) != {} or len(listed) != 1 or system.glob(f"{path}/{NAME}-*.pt") != listed:
        return False
    untrusted.content(system.unstrip_protocol(listed[0]))  # as an interrupted unit finds its state
    checkpoints.delete(written)
    return not system.exists(listed[0])


def _forget(place: str) -> None:
    """Remove what a failed attempt has left in the memory."""
    import fsspec

    memory = fsspec.filesystem("memory")
    if memory.exists(place):
        memory.rm(place, recursive=True)
