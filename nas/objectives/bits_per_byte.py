"""How well a model predicts text: the bits that it needs to encode one byte of held-out text."""

from __future__ import annotations

from nas.objectives.contract import MetricObjective
from nas.objectives.registry import objective


@objective("bits_per_byte")
class BitsPerByte(MetricObjective):
    """Comparable between tokenisations: characters are counted in bytes of UTF-8 too."""
