"""How well a model predicts text: bits to encode one byte of what it has not seen."""

from __future__ import annotations

from nas.objectives.contract import MetricObjective
from nas.objectives.registry import objective


@objective("bits_per_byte")
class BitsPerByte(MetricObjective):
    """Comparable between levels of text: bytes and characters alike are counted in bytes of UTF-8."""
