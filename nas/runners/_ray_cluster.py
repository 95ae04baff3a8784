"""The Ray that a runner uses: started on this machine or found at an address, and what its nodes have for units."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ray

from nas.errors import NasError

if TYPE_CHECKING:
    from nas.runners.ray import RayOptions

log = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 128 * 2**20  # units and outcomes are a few kilobytes; Ray's default takes 30% of the memory
OWN = {"CPU": "num_cpus", "GPU": "num_gpus"}  # Ray's names for an amount on a node and for an option of a task


class RayCluster:
    """A connection to Ray. A Ray that is connected already is used as it is, and stays connected."""

    def __init__(self, options: RayOptions) -> None:
        """Connect. Raises NasError if Ray cannot be started or reached."""
        self._options = options
        self.own = not ray.is_initialized()
        self._missing: list[Mapping[str, float]] = []  # what no node had when a unit was last submitted
        if self.own:
            _connect(options)

    def failed(self, why: str) -> NasError:
        """The error that ends a search because Ray has failed."""
        where = _where(self._options)
        return NasError(
            f"{where[0].upper()}{where[1:]} failed: {why.rstrip('.')}. Every recorded trial is kept, and no attempt "
            "was counted. When Ray works, run the same search to continue."
        )

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


def _is_new(record: logging.LogRecord) -> bool:
    """Whether a message of Ray tells something that a search in a thread does not know."""
    return "SIGTERM handler is not set" not in record.getMessage()


logging.getLogger("ray._private.worker").addFilter(_is_new)


def _where(options: RayOptions) -> str:
    return f"the Ray cluster at {options.address!r}" if options.address else "Ray on this machine"


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


def with_places(needs: Mapping[str, Any], probes: Iterable[Any]) -> dict[str, Any]:
    """What a unit needs, and the places of its probes: `on: {resources: ...}` of objectives as in the search file.

    CPU and GPU are amounts of Ray's own resources. Of a resource that several probes name, the largest amount counts.
    """
    found = dict(needs)
    options = [each for spec in probes if isinstance(spec, Mapping) for each in spec.values()]
    on = [each.get("on") or {} for each in options if isinstance(each, Mapping)]
    places = [each["resources"] for each in on if "resources" in each]  # the others are on machines
    for name, amount in (item for place in places for item in place.items()):
        if name in OWN:
            found[OWN[name]] = max(amount, found.get(OWN[name]) or 0)
        else:
            known = found.get("resources") or {}
            found["resources"] = {**known, name: max(amount, known.get(name, 0))}
    return found


def by_name(needs: Mapping[str, Any]) -> dict[str, float]:
    """What a unit needs, by the names that nodes have for it."""
    own = {"CPU": needs["num_cpus"], "GPU": needs["num_gpus"], "memory": needs["memory"]}
    return {name: amount for name, amount in {**own, **(needs["resources"] or {})}.items() if amount}


@contextmanager
def accepted(needs: Mapping[str, Any]) -> Iterator[None]:
    """Raise NasError if Ray refuses these needs inside the block: 1.5 TPUs, or a name that is not ASCII."""
    try:
        yield
    except ValueError as error:
        raise NasError(
            f"Ray refuses a unit that needs {_listed(by_name(needs))}: {str(error).rstrip('.')}. Change the resources "
            "of the runner or of the objective (`on`)."
        ) from error


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
