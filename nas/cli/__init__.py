"""The command line, one file a command, found by itself."""

from __future__ import annotations

import atexit
import gc


def main() -> None:
    """The entry point of `nas`."""
    from nas.cli.collector import uncollected

    with uncollected():
        from nas.cli.app import run

    # When Python ends, it looks for garbage among all objects, which took a quarter of the time of `nas best`. Frozen
    # objects are left out. What is registered first runs last.
    atexit.register(gc.freeze)
    run()
