"""Counts in messages."""

from __future__ import annotations


def plural(count: int, noun: str, several: str | None = None) -> str:
    """1 trial, 3 trials, 2,000 documents. several: the plural of an irregular noun."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"
