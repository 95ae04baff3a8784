"""Convolutions over time."""
