"""Finds the fastest correct configuration of a problem: candidates, search, decisions, tables."""
