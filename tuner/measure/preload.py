"""Imports for the server that forks the children: torch, the operations, and all that the correctness check needs.

What is imported is no garbage. To search it takes a fifth of the time of the imports, and as long again when the server
ends; in a child each search would copy its memory.
"""

import gc
from contextlib import suppress

gc.disable()

import torch._inductor.config  # noqa: E402

import tuner.measure.worker  # noqa: E402
from kernels.dispatch import registry  # noqa: E402

with suppress(Exception):  # the child that needs a broken operation reports the error
    registry.operations()

gc.freeze()
gc.enable()

__all__ = ["torch", "tuner"]
