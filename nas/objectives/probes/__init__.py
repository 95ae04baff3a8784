"""Scores of an untrained model that may tell how good it becomes ("zero-cost proxies"), each in a file of its own."""

from nas.objectives.probes import (
    activation_distance,
    gradient_norm,
    jacobian_covariance,
    short_race,
    snip,
    synflow,
    zico,
)

__all__ = ["activation_distance", "gradient_norm", "jacobian_covariance", "short_race", "snip", "synflow", "zico"]
