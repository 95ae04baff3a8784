"""Tuning strategies by name."""

from nas.registry import Registry

STRATEGIES = Registry("tuning strategy", "tuner.strategies", given=("space", "seed", "first", "hints"))
strategy = STRATEGIES.register
