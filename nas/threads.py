"""How many threads torch can compute on. This module imports nothing, so it also serves a machine without pydantic."""

from __future__ import annotations

from typing import Any

MOST_THREADS = 1024  # of torch: with 100,000 the process ends with a segmentation fault


def checked_threads(threads: Any) -> int:
    """The number, if torch can compute on as many threads. Raises ValueError if it cannot."""
    if type(threads) is not int or threads < 1:
        raise ValueError(f"threads must be at least 1, but got {threads!r}.")
    if threads > MOST_THREADS:
        raise ValueError(f"threads must be at most {MOST_THREADS:,}, but got {threads}.")
    return threads
