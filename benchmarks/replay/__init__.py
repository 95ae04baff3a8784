"""Tuning strategies replayed on recorded spaces, beside other tuners."""
