"""The most bytes that one call of an architecture needs on a device, with its weights (`nas.latency.memory`)."""

from __future__ import annotations

from nas.latency import evidence
from nas.latency.measured import PhaseLatency
from nas.objectives.contract import NoValue
from nas.objectives.latency import Latency
from nas.objectives.registry import objective


@objective("peak_memory")
class PeakMemory(Latency):
    """Its name in results is `train_peak_bytes`, and so on. It has the options of `latency`, and is always measured."""

    unit = evidence.UNITS["peak_memory"]
    extras = True

    def _value(self, found: PhaseLatency) -> float:
        if found.peak_bytes is None:
            raise NoValue(f"objective {self.name}: the memory of a call cannot be measured on {self.setting.device}.")
        return float(found.peak_bytes)
