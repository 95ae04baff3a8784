"""Who holds which unit: the name of this process in the store, and a thread that keeps its leases alive."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import StoreError

if TYPE_CHECKING:
    from nas.store import Store

SECONDS = 30.0  # a lease that is not renewed for so long may be taken over


def owner_name() -> str:
    """host/boot/pid/start/random: enough to tell, on the same host, whether the process still lives."""
    return "/".join((socket.gethostname(), _boot(), str(os.getpid()), _started(os.getpid()), uuid.uuid4().hex[:8]))


def is_dead(owner: str) -> bool:
    """True when `owner` is a process of this host that is gone; False when it lives or cannot be known from here."""
    parts = owner.split("/")
    if len(parts) != 5:
        return False
    host, boot, pid, started, _ = parts
    # Of another boot nothing is said: hosts may share a name, and after a restart the lease has run out anyway.
    if host != socket.gethostname() or boot != _boot() or not pid.isdecimal():
        return False
    return _started(int(pid)) != started


def dead(owners: Iterable[str]) -> list[str]:
    """Those of `owners` whose leases can be taken over without waiting."""
    return [owner for owner in owners if is_dead(owner)]


@cache
def _boot() -> str:
    """This boot and this container: a pid says nothing about a process of another one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot.replace("-", "") + "-" + Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        return f"{uuid.getnode():x}"


def _started(pid: int) -> str:
    """When process `pid` began, in clock ticks since boot, or '' when there is none."""
    try:
        # The command name is in parentheses and may hold spaces; the 20th field after it is the start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        return _alive_without_proc(pid)


def _alive_without_proc(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"


class Keeper:
    """Renews the leases of the units in `held`, every third of a lease, for as long as the process lives."""

    def __init__(self, store: Store, owner: str, seconds: float = SECONDS):
        self.owner, self.seconds = owner, seconds
        self._store = store
        self._held: set[int] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
        self._thread.start()

    def hold(self, unit: int) -> None:
        with self._lock:
            self._held.add(unit)

    def drop(self, unit: int) -> None:
        with self._lock:
            self._held.discard(unit)

    def held(self) -> list[int]:
        with self._lock:
            return sorted(self._held)

    def _renew(self) -> None:
        while not self._closed.wait(self.seconds / 3):
            units = self.held()
            if not units:
                continue
            try:
                self._store.renew(units, self.owner, self.seconds)
            except StoreError:
                continue  # the main thread meets it where it can be reported, and sees a lost lease at `finish`

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=5)
