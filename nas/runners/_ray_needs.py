"""What a unit needs of the nodes of a cluster: the options of the runner, and the places of the unit's probes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nas.errors import NasError

OWN = {"CPU": "num_cpus", "GPU": "num_gpus"}  # Ray's names for an amount on a node and for an option of a task


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
        listed = ", ".join(f"{name} {amount:g}" for name, amount in by_name(needs).items())
        raise NasError(
            f"Ray refuses a unit that needs {listed}: {str(error).rstrip('.')}. Change the resources of the runner or "
            "of the objective (`on`)."
        ) from error
