"""What a runner may be told in a search file, checked without importing what it runs on."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from nas.config.schema import Count


class InlineOptions(BaseModel):
    """None: a unit has this process to itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RayOptions(BaseModel):
    """What one unit needs, and where: `gpus` may be a fraction; without `workers` the cluster's resources decide."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    workers: Annotated[int, Field(ge=1)] | None = None
    cpus: Annotated[float, Field(gt=0)] = 1
    gpus: Annotated[float, Field(ge=0)] = 0
    memory: Annotated[Count, Field(gt=0)] | None = None
    resources: dict[str, Annotated[float, Field(ge=0)]] = {}
    address: str | None = None

    def needs(self) -> dict[str, float]:
        """The resources of one unit, by Ray's names."""
        need = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory or 0, **self.resources}
        return {name: amount for name, amount in need.items() if amount}


RUNNERS: dict[str, type[InlineOptions] | type[RayOptions]] = {"inline": InlineOptions, "ray": RayOptions}
