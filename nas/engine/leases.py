"""The name of this process as an owner of leases, and the heartbeat that keeps its leases alive."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import NasError, StoreError

if TYPE_CHECKING:
    from nas.store import Store
    from nas.work import Progress

SECONDS = 30.0  # a lease that is not renewed for this long may be taken over
UNKNOWN_START = "alive"  # written instead of the start time where psutil is missing


def owner_name() -> str:
    """host/boot/pid/start/random: enough to find out, on the same host, whether the process still runs."""
    return "/".join((socket.gethostname(), _boot(), str(os.getpid()), _started(os.getpid()), uuid.uuid4().hex[:8]))


def is_dead(owner: str) -> bool:
    """True if `owner` is a process of this host that has ended; False if it runs or cannot be known from here."""
    parts = owner.split("/")
    if len(parts) != 5:
        return False
    host, boot, pid, started, _ = parts
    # Nothing can be said about another boot: hosts may share a name, and after a restart the lease has run out anyway.
    if host != socket.gethostname() or boot != _boot() or not pid.isdecimal():
        return False
    now = _started(int(pid))
    return not now or (now != started and UNKNOWN_START not in (now, started))


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
    """When process `pid` started, in clock ticks since boot; '' if there is none or it is a zombie.

    psutil adds the time of the boot to what the system says. Subtracted again, the number is that of the system, which
    stays the same when the clock is set; so the boot time must not change between the two.
    """
    try:
        import psutil
    except ImportError:  # a bare machine
        return UNKNOWN_START if _exists(pid) else ""
    try:
        while True:
            boot, process = psutil.boot_time(), psutil.Process(pid)
            seconds = process.create_time() - boot
            if psutil.boot_time() == boot:
                break
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return ""
        return str(round(seconds * os.sysconf("SC_CLK_TCK")))
    except psutil.ZombieProcess:
        return ""
    except psutil.NoSuchProcess:  # or /proc hides the processes of other users (hidepid)
        return UNKNOWN_START if _exists(pid) else ""
    except psutil.AccessDenied:
        return UNKNOWN_START


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Heartbeat:
    """A thread that renews the leases of the held units, every third of a lease, and reports their progress.

    A database that does not answer is tried again. Any other error ends the thread; `check` raises it. progress: the
    progress of the units that report it, by id. It is called in the thread.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        seconds: float = SECONDS,
        progress: Callable[[], Mapping[int, Progress]] = dict,
    ):
        self.owner, self.seconds = owner, seconds
        self._store = store
        self._progress = progress
        self._held: set[int] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
        self._thread.start()

    def hold(self, unit: int) -> None:
        """Renew the lease of this unit from now on."""
        with self._lock:
            self._held.add(unit)

    def drop(self, unit: int) -> None:
        """Renew the lease of this unit no longer."""
        with self._lock:
            self._held.discard(unit)

    def held(self) -> list[int]:
        """The ids of the units whose leases are renewed, ascending."""
        with self._lock:
            return sorted(self._held)

    def check(self) -> None:
        """Raise NasError if the thread has ended, because then other processes take over what runs here."""
        if self._error is not None:
            kind = type(self._error).__name__
            raise NasError(f"The leases of this process could not be renewed: {kind}: {self._error}") from self._error

    def _renew(self) -> None:
        while not self._closed.wait(self.seconds / 3):
            units = self.held()
            if not units:
                continue
            try:
                self._store.renew(units, self.owner, self.seconds, self._progress())
            except StoreError:
                continue  # the main thread meets it where it can be reported, and sees a lost lease at `finish`
            except Exception as error:
                self._error = error
                return

    def close(self) -> None:
        """Stop renewing; the leases run out by themselves."""
        self._closed.set()
        self._thread.join(timeout=5)
