"""In a distributed job one rank decides what a call uses, so that all ranks on equal devices use the same.

The ranks agree through the key-value store that `torch.distributed` opened at its start. This is no collective
operation: a rank that never makes the call, or makes it later, blocks no other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import torch

from kernels.dispatch.registry import Choice
from tuner import problems

LONGEST = 120.0  # seconds to wait for the rank that decides
SHORTEST = 0.001  # a store takes 0 for no limit
PREFIX = "tessera-tuning"
Found = TypeVar("Found")


def store() -> torch.distributed.Store | None:
    """The store of the job; None outside of a job, and in a job of one process."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() < 2:
        return None
    return distributed.PrefixStore(PREFIX, distributed.distributed_c10d._get_default_store())


def agreed(
    shared: torch.distributed.Store,
    what: str,
    find: Callable[[], Found],
    choice_of: Callable[[Found], Choice | None],
    use: Callable[[Choice], Found | None],
    longest: float | None = None,
    on_late: Callable[[], None] = lambda: None,
) -> Found:
    """What the first rank that asks for `what` finds.

    That rank calls `find` and publishes the choice. The others wait for it and `use` it. They call `find` themselves if
    it is no choice of theirs, if the first rank found none or failed, after `longest` seconds (by default LONGEST), or
    if the store of the job does not answer; before the last two `on_late` is called. Raises what `find` raises.
    """
    key = hashlib.sha256(what.encode()).hexdigest()[:24]
    try:
        is_first = shared.add(f"{key}/asked", 1) == 1
    except RuntimeError:  # the job has ended, or the rank that holds the store
        return find()
    if is_first:
        text = ""
        try:
            found = find()
            choice = choice_of(found)
            text = "" if choice is None else json.dumps([choice.implementation, problems.configuration_text(choice)])
        finally:
            with suppress(RuntimeError):
                shared.set(key, text)
        return found
    try:
        shared.wait([key], timedelta(seconds=LONGEST if longest is None else max(longest, SHORTEST)))
        text = shared.get(key).decode()
    except RuntimeError:  # it took too long, or the store has closed
        on_late()
        return find()
    used = use(_choice(text)) if text else None
    return find() if used is None else used


def _choice(text: str) -> Choice:
    implementation, configuration = json.loads(text)
    return Choice.of(implementation, json.loads(configuration))
