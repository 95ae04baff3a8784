"""The Ray that a runner uses: started on this machine or found at an address, and started or found again if it ends."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import ray

from nas.errors import NasError
from nas.upkeep import leftovers

if TYPE_CHECKING:
    from nas.runners.ray import RayOptions

log = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 128 * 2**20  # units and outcomes are a few kilobytes; Ray's default takes 30% of the memory
LOCAL_TRIES = 3  # starts of a Ray of our own in a row that lose every unit
NAMED_TRIES = 10  # looks for the cluster at the address, over about five minutes
LONGEST_PAUSE = 60.0  # seconds between two of them


class RayCluster:
    """A connection to Ray. It counts how often it was restored since the last outcome of a unit.

    A Ray that is connected already is used as it is, and stays connected when this is closed.
    """

    def __init__(self, options: RayOptions) -> None:
        """Connect. Raises NasError if Ray cannot be started or reached."""
        self._options = options
        self.own = not ray.is_initialized()
        self._tries, self._next = 0, 0.0
        self._missing: list[Mapping[str, float]] = []  # what no node had when a unit was last submitted
        if self.own:
            _connect(options)

    def works(self) -> None:
        """Note that a unit gave an outcome."""
        self._tries = 0

    def again(self, timeout: float, why: str) -> bool:
        """Start or find Ray again, if it is time to, else wait up to `timeout` seconds; whether it is connected now.

        why: what is known of the failure, for the message. Raises NasError after too many tries.
        """
        if not self.own:
            raise NasError(
                f"Ray failed: {why} It was connected before the search began, so the search does not connect it again. "
                "Connect it again, or leave that to the search, and run the same search to continue."
            )
        if (left := self._next - time.monotonic()) > 0:
            time.sleep(min(left, timeout))
            return False
        where = _where(self._options)
        if self._tries >= (NAMED_TRIES if self._options.address else LOCAL_TRIES):
            raise NasError(
                f"{where[0].upper()}{where[1:]} failed, was {_again(self._options)} {self._tries} times in a row, and "
                f"still fails. The last failure: {why} Every recorded trial is kept, and no attempt was counted. "
                "When Ray works, run the same search to continue."
            )
        log.warning("%s failed, so it is %s now. %s", where, _again(self._options), why)
        self._tries += 1
        self._next = time.monotonic() + min(LONGEST_PAUSE, 2.0 ** (self._tries - 1))
        with contextlib.suppress(NasError), _kept_handler():
            self.close()
            _connect(self._options)
            return True
        return False

    def units_at_once(self) -> int:
        """How many units fit on the nodes at once; a cluster with given `workers` may have no space yet: it may grow.

        Raises NasError if no node can hold a unit.
        """
        need, nodes = self._options.needs(), _alive()
        most = sum(_times(node, need) for node in nodes)
        if self._options.workers and self._options.address:
            self.look_for(need)
            return most
        if most:
            return most
        raise NasError(
            f"No node of the Ray cluster can hold a unit: it needs {_listed(need)}; the nodes have up to "
            f"{_listed(_largest(nodes))}."
        )

    def look_for(self, need: Mapping[str, float]) -> None:
        """Warn if a unit with this need waits because no node can hold it. Raises NasError if no node can come."""
        nodes = _alive()
        if not nodes or any(_times(node, need) for node in nodes):
            self._missing = [each for each in self._missing if each != need]
        elif self.own and not self._options.address:
            raise NasError(
                f"Ray on this machine has no worker with {_listed(need)}, which an objective needs (`on`), and no "
                "other node can join it. Start a cluster (`ray start --head`), offer the resources on a node (`ray "
                "start --resources=...`), and name the cluster in the search file (`runner: {ray: {address: ...}}`)."
            )
        elif need not in self._missing:
            self._missing.append(need)
            log.warning(
                "No node of the Ray cluster has all of %s, so a unit that needs them waits until one joins.",
                _listed(need),
            )

    def close(self) -> None:
        """Disconnect, which ends a Ray of our own."""
        if self.own:
            ray.shutdown()


@contextlib.contextmanager
def _kept_handler() -> Iterator[None]:
    """Keep the search's handler of SIGTERM: Ray sets its own when it connects."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _is_new(record: logging.LogRecord) -> bool:
    """Whether a message of Ray tells something that a search in a thread does not know."""
    return "SIGTERM handler is not set" not in record.getMessage()


logging.getLogger("ray._private.worker").addFilter(_is_new)


def _where(options: RayOptions) -> str:
    return f"the Ray cluster at {options.address!r}" if options.address else "Ray on this machine"


def _again(options: RayOptions) -> str:
    return "looked for again" if options.address else "started again"


def _connect(options: RayOptions) -> None:
    try:
        if options.address:
            ray.init(address=options.address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            _start(options)
    except Exception as error:  # Ray raises many types, among them Exception itself if a start takes too long
        raise NasError(f"Could not reach {_where(options)}: {str(error).rstrip('.')}. {_advice(options)}") from None


def _advice(options: RayOptions) -> str:
    if not options.address:
        return "Look at the limits of this machine, or use `runner: inline`."
    return (
        "Start a cluster with `ray start --head`, or use `runner: inline`. A cluster that asks for a token (Ray says "
        "so above) wants RAY_AUTH_MODE=token here, and the head's ~/.ray/auth_token in its place."
    )


def _start(options: RayOptions) -> None:
    """Start a Ray of our own on this machine, with resources for exactly the requested workers."""
    workers = options.workers or max(1, int((os.cpu_count() or 1) / options.cpus))
    ray.init(
        address="local",  # not a cluster that already runs on this machine
        num_cpus=math.ceil(options.cpus * workers),
        resources={name: amount * workers for name, amount in (options.resources or {}).items()},
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    node = getattr(ray._private.worker, "_global_node", None)
    if node is not None:
        leftovers.mark_ray_session(node.get_session_dir_path())


def _alive() -> list[dict[str, float]]:
    """The resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _times(node: Mapping[str, float], need: Mapping[str, float]) -> int:
    """How many units with this need a node holds at once."""
    return min(_parts(node.get(name, 0)) // max(1, _parts(amount)) for name, amount in need.items())


def _parts(amount: float) -> int:
    """In ten-thousandths, as Ray counts: 1 // 0.1 is 9."""
    return round(1e4 * amount)


def _listed(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in resources.items())


def _largest(nodes: list[dict[str, float]]) -> dict[str, float]:
    """The largest amount of each resource on one node, without Ray's own, whose names have a colon."""
    names = sorted({name for node in nodes for name in node if ":" not in name})
    return {name: max(node.get(name, 0) for node in nodes) for name in names}
