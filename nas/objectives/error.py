"""The fraction of held-out examples that are classified wrongly."""

from __future__ import annotations

from nas.objectives.contract import MetricObjective
from nas.objectives.registry import objective


@objective("error")
class Error(MetricObjective):
    """From 0 to 1."""
