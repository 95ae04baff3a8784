"""Schedules of the learning rate by name. Each schedule is one file."""

from nas.training.schedules.registry import Schedule, make, schedules

__all__ = ["Schedule", "make", "schedules"]
