"""Imports for the server that forks the children: torch, the operations, and all that the correctness check needs."""

from contextlib import suppress

import torch._inductor.config

import tuner.measure.worker
from kernels.dispatch import registry

with suppress(Exception):  # the child that needs a broken operation reports the error
    registry.operations()

__all__ = ["torch", "tuner"]
