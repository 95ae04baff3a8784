"""Recurrences over time."""
