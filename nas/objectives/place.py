"""Where an objective is measured, if the search does not measure it: the option `on` of latencies.

on: {resources: {quiet_gpu: 1, GPU: 1}}     # on a worker of Ray that holds them
on: {machine: laptop}                       # where `nas latency serve STUDY --machine laptop` runs
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from nas.options import PlainValidator

SMALLEST = 1e-4  # of an amount: Ray counts in ten-thousandths
RESERVED = ("memory", "object_store_memory", "bundle")  # Ray refuses them, and names that are not ASCII


def _place(on: Any) -> dict[str, Any]:
    """The same. Raises ValueError, for a sentence about the option, unless it names a machine or resources."""
    known = isinstance(on, Mapping) and len(on) == 1
    machine, resources = (on.get("machine"), on.get("resources")) if known else (None, None)
    if isinstance(resources, Mapping) and resources:
        for name, amount in resources.items():
            _check_amount(name, amount)
    elif not isinstance(machine, str) or not machine.strip():
        raise ValueError("must be {resources: {NAME: AMOUNT}} or {machine: NAME}")
    return dict(on)


def _check_amount(name: Any, amount: Any) -> None:
    if not isinstance(name, str) or name in RESERVED or not name.isascii():
        raise ValueError(f"must name CPU, GPU or custom resources of Ray, and {name!r} is none of them")
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not SMALLEST <= amount < math.inf:
        raise ValueError(f"must have a number of at least {SMALLEST:g} as the amount of {name}")
    if name == "GPU" and amount > 1 and amount % 1:
        raise ValueError("must have a whole number as the amount of GPU if it is above 1")


Place = Annotated[dict[str, Any], PlainValidator(_place)]
