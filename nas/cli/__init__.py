"""The command line, one file a command, found by itself."""

from __future__ import annotations


def main() -> None:
    """The entry point of `nas`."""
    from nas.cli.app import run

    run()
