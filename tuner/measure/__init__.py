"""Measures a configuration: clocks, intervals, worker processes, correctness."""
