"""The application that the commands register with, and how errors end: a message on stderr and an exit code.

Exit codes: 0 done, 1 the command could not do it, 2 bad input, 3 the study database, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import typer

from nas.errors import NasError
from searchspace.errors import SpaceError

app = typer.Typer(
    name="nas",
    help="Finds sequence-model architectures better than the Transformer, for your data, device and budget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def discover() -> None:
    """Import every command, so that it registers itself."""
    import nas.cli

    for module in pkgutil.iter_modules(nas.cli.__path__, "nas.cli."):
        importlib.import_module(module.name)


def run(arguments: list[str] | None = None) -> None:
    """Run the command line; ends the process."""
    discover()
    try:
        app(args=arguments)
    except (NasError, SpaceError) as error:
        _fail(str(error), getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        _fail("Interrupted.", 130)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the reader went away, as `nas best | head` does
        sys.exit(0)


def _fail(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
