"""Disturbs running searches in many ways and counts what is lost: `python -m benchmarks.chaos`, see `__main__`."""
