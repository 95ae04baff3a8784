"""Tokens per second of an architecture on a device, at a batch size: the reciprocal of its latency (`latency`)."""

from __future__ import annotations

from nas.latency import evidence
from nas.latency.measured import PhaseLatency
from nas.objectives.contract import Direction
from nas.objectives.latency import Latency
from nas.objectives.registry import objective


@objective("throughput")
class Throughput(Latency):
    """Its name in results is `decode_tokens_per_second`, and so on. It has the options of `latency`.

    Tokens are those that one call reads (prefill, first_token, train) or generates (decode, generate), over the batch.
    """

    direction = Direction.MAXIMISE
    unit = evidence.UNITS["throughput"]

    def _value(self, found: PhaseLatency) -> float:
        return 1e3 * self.setting.tokens / found.milliseconds
