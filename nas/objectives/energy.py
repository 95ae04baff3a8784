"""The joules of one call of an architecture, where the device reports its energy (`nas.latency.energy`)."""

from __future__ import annotations

from nas.errors import UsageError
from nas.latency import energy, evidence
from nas.latency.measured import PhaseLatency
from nas.objectives.contract import NoValue
from nas.objectives.latency import Latency
from nas.objectives.registry import objective
from tuner.device import resolve


@objective("energy")
class Energy(Latency):
    """Its name in results is `decode_joules`, and so on. It has the options of `latency`, and is always measured.

    The counter of a CPU counts everything that runs on the package, so nothing else should.
    """

    unit = evidence.UNITS["energy"]
    extras = True

    def _check_device(self) -> None:
        """Raises UsageError if the device is not on this machine, or this process can read no counter of it."""
        super()._check_device()
        if energy.counter(resolve(self.setting.device)) is None:
            raise UsageError(f"objective {self.name}: {energy.why_none(self.setting.device)}")

    def _value(self, found: PhaseLatency) -> float:
        if found.joules is None:
            raise NoValue(f"objective {self.name}: {energy.why_none(self.setting.device)}")
        return found.joules
