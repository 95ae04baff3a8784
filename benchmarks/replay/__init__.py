"""Tuning strategies replayed on recorded spaces, compared with other tuners."""
