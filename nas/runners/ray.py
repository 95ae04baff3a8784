"""The options of the Ray runner. Ray itself is imported when it is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nas.config.schema import Count
from nas.options import Field, Number, Steps
from nas.runners.contract import Runner
from nas.runners.registry import runner
from nas.threads import MOST_THREADS


@runner("ray")
@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """The resources of one unit, and where Ray runs: `gpus` may be a fraction.

    Without `workers` the resources of the cluster decide how many units run at once.
    """

    workers: Steps | None = None
    cpus: Annotated[Number, Field(gt=0, le=MOST_THREADS)] = 1
    gpus: Number = 0
    memory: Annotated[Count, Field(gt=0, le=2**60)] | None = None
    resources: dict[str, Number] | None = None
    address: str | None = None

    def needs(self) -> dict[str, float]:
        """The resources of one unit, by Ray's names."""
        need = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory or 0, **(self.resources or {})}
        return {name: amount for name, amount in need.items() if amount}

    def start(self) -> Runner:
        """A runner on a local Ray or on the cluster at `address`. Raises NasError if it cannot be reached."""
        from nas.runners._ray import RayRunner

        return RayRunner(self)
