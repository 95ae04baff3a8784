"""The application with which commands register. An error ends as a message on stderr and an exit code."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pkgutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.main

from nas.cli.collector import uncollected
from nas.errors import NasError
from searchspace.errors import SpaceError

INTERRUPTED = 130
EXIT_CODES = {
    0: "done",
    1: "the command failed, or found nothing",
    2: "bad input: a file, a name or an option",
    3: "the study database",
    INTERRUPTED: "interrupted",
}

# Packages with commands. Those of other packages are found by their name, so that `nas` does not import them.
FOLDERS = ("nas.cli", "dashboards.cli")

app = typer.Typer(
    name="nas",
    help="Finds sequence-model architectures better than the Transformer, for your data, device and budget.",
    epilog="Results go to stdout, everything else to stderr; --json prints results as JSON. Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    + ".",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        from nas.cli.output import say

        try:
            found = version("tessera-nas")
        except PackageNotFoundError:
            found = "from a folder that is not installed"
        say(f"Tessera {found}")
        raise typer.Exit


@app.callback()
def _for_every_command(
    blocks: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Run this file of your own blocks first. May be given several times."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    if blocks:
        from nas.own.blocks import of_file

        for file in blocks:
            of_file(file)


def discover(command: str | None = None) -> None:
    """Import the commands, so that they register themselves: all of them, or the one with this name if there is one.

    A command NAME is in NAME.py, and its subcommands may be in NAME_*.py. Importing and building the others would take
    more CPU than reading a study.
    """
    modules = [
        found.name
        for folder in map(importlib.import_module, FOLDERS)
        for found in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}.")
        if not found.ispkg
    ]
    files = {name: name.rpartition(".")[2] for name in modules}
    own = [name for name in modules if f"{files[name]}_".startswith(f"{command}_")]
    for module in own if command in files.values() else modules:
        importlib.import_module(module)


def command() -> Any:
    """The group of all commands that registered so far. Reading their signatures takes longer than running most
    commands, so they are read again only after new registrations.
    """
    groups = [app, *(group.typer_instance for group in app.registered_groups if group.typer_instance)]
    return _command(sum(len(each.registered_commands) for each in groups))


@functools.cache
def _command(_registered: int) -> Any:
    return typer.main.get_command(app)


began = 0.0  # of time.monotonic(), when the command began


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; ends the process."""
    global began
    began = time.monotonic()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        _check_kernels(words)
        with uncollected():
            discover(words[0] if words else None)  # all of them if an option is first
        if "--json" in words:
            from nas.cli.output import only_json

            only_json()
        try:
            command()(args=arguments, prog_name="nas")
        finally:
            sys.stdout.flush()
    except (NasError, SpaceError) as error:
        _fail(str(error), getattr(error, "exit_code", 2))
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # Ctrl-C, which typer ends without a word
            _fail("Interrupted.", INTERRUPTED)
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _forget_stdout()
    except BrokenPipeError:
        _forget_stdout()
    except KeyboardInterrupt:
        _fail("Interrupted.", INTERRUPTED)
    except Exception as error:
        if type(error).__name__ == "LockedMiss":  # by its name, so that an error does not import `kernels`
            _fail(str(error), 1)
        if isinstance(error, OSError) and error.filename is not None:
            _fail(f"{error.filename}: {error.strerror}.", 1)
        raise
    sys.exit(0)


def _check_kernels(words: list[str]) -> None:
    """Exit and name the cure if another package `kernels` takes the place of ours. `nas doctor` runs and explains
    it.
    """
    from nas import kernels_folder

    if words[:1] != ["doctor"]:
        try:
            kernels_folder.check()
        except ImportError as error:
            _fail(str(error), 1)


def _forget_stdout() -> None:
    """Discard further output: the reader has closed the pipe, as in `nas best quickstart | head -1`."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> NoReturn:
    from nas.cli.output import note

    note(f"error: {message}")
    sys.exit(code)
