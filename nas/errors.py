"""Errors that a user can correct. The command line prints them without a traceback and exits with `exit_code`."""

from __future__ import annotations


class NasError(Exception):
    """Something that a user can correct; the message says what was wrong, where, and what to do."""

    exit_code = 1


class UsageError(NasError):
    """Bad input: a file, a name or an option."""

    exit_code = 2


class AnswerProblem(NasError):
    """The user's own strategy, scheduler or task broke its contract; the message names its class and the method."""


class DiskFull(NasError):
    """A file could not be written, because the disk or the quota is full."""


class Unreachable(NasError):
    """A place of files does not answer, or refuses what is asked."""


class StoreError(NasError):
    """The study database cannot be used as asked."""

    exit_code = 3
