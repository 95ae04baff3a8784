"""What the server that forks the children has loaded before: torch, the operations, what the gate needs."""

from contextlib import suppress

import torch._inductor.config

import tuner.measure.worker
from kernels.dispatch import registry

with suppress(Exception):  # what is wrong with an operation, the child that needs it will say
    registry.operations()

__all__ = ["torch", "tuner"]
