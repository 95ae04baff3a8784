"""Processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil


def running() -> list[tuple[int, str]]:
    """(pid, command line) of every process."""
    return [(each.pid, _command(each)) for each in psutil.process_iter()]


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def parent(pid: int) -> int:
    """The parent of a process; 0 if the process has ended."""
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return 0


def descendants(ancestor: int) -> list[tuple[int, str]]:
    """(pid, command line) of the children of a process, their children, and so on."""
    try:
        return [(each.pid, _command(each)) for each in psutil.Process(ancestor).children(recursive=True)]
    except psutil.Error:
        return []


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _command(process: psutil.Process) -> str:
    """The command line; empty if the process has ended or is another user's."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
