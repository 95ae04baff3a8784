"""The same numbers for the same unit, and the process left as it was found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def deterministic(seed: int, threads: int) -> Iterator[None]:
    """Seed torch, use `threads` cores and deterministic algorithms; put everything back at the end."""
    # cuBLAS reads it when it starts, and is not deterministic without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_num_threads()
    strict, lenient = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with torch.random.fork_rng():
        try:
            torch.set_num_threads(threads)
            torch.manual_seed(seed)
            # A few CUDA operations (cumsum among them) have no deterministic form: better a warning than no training.
            torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
            yield
        finally:
            torch.use_deterministic_algorithms(strict, warn_only=lenient)
            torch.set_num_threads(before)
