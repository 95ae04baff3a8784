"""Looks after a study database: checksums, and checks for damage."""
