"""Serving: routes, databases that are only read, protection, live events."""
