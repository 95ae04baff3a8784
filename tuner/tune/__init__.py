"""Tunes an operation on a device: candidates, decisions, tables."""
