"""Connections to the database: transactions that are retried, errors in plain words, URLs without their password."""
