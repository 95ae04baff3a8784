"""The same numbers for the same unit, and the process left as it was found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.utils.deterministic


@contextmanager
def deterministic(threads: int, device: torch.device) -> Iterator[None]:
    """Use `threads` cores and deterministic algorithms; put everything back at the end, random states too."""
    # cuBLAS reads it when it starts, and is not deterministic without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_num_threads()
    strict, lenient = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filled = torch.utils.deterministic.fill_uninitialized_memory
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            torch.set_num_threads(threads)
            # A few CUDA operations (cumsum among them) have no deterministic form: better a warning than no training.
            torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
            torch.utils.deterministic.fill_uninitialized_memory = (
                False  # a debugging aid that writes every buffer twice
            )
            yield
        finally:
            torch.use_deterministic_algorithms(strict, warn_only=lenient)
            torch.utils.deterministic.fill_uninitialized_memory = filled
            torch.set_num_threads(before)
