"""Helpers of several benchmarks: clocks, tables, published models."""
