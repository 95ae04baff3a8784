"""Processes of this machine, as /proc lists them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def running() -> list[tuple[int, str]]:
    """(pid, command line) of every process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append((int(entry.name), command))
    return found


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    return bool(stat := _stat(pid)) and stat[0] not in "ZX"


def parent(pid: int) -> int:
    """The parent of a process; 0 if the process has ended."""
    return int(stat[1]) if (stat := _stat(pid)) else 0


def descendants(ancestor: int) -> list[tuple[int, str]]:
    """(pid, command line) of the children of a process, their children, and so on."""
    commands = dict(running())
    found = {ancestor}
    while more := {pid for pid in commands if pid not in found and parent(pid) in found}:
        found |= more
    return [(pid, commands[pid]) for pid in found - {ancestor}]


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _stat(pid: int) -> list[str]:
    """State, parent, ... of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
