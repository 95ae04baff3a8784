"""The fraction of held-out examples given a wrong class."""

from __future__ import annotations

from nas.objectives.contract import MetricObjective
from nas.objectives.registry import objective


@objective("error")
class Error(MetricObjective):
    """From 0 to 1."""
