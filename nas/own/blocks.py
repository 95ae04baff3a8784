"""Blocks of the user's own: files that register blocks when they are run, here and on every worker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from nas.errors import UsageError
from nas.own import source
from searchspace.contract import Primitive
from searchspace.registry import BlockType, all_blocks, block_types, forget

ENDING = ".py"
SECONDS = 60.0  # that a file may take to define its blocks


class BlockProblem(UsageError):
    """A file of blocks cannot be used: it cannot be read, raises an error, or registers no block."""


def read(names: Iterable[str], folder: Path) -> dict[str, str]:
    """The texts of the files `names` by name; relative names are relative to `folder`.

    Raises BlockProblem if a name is not that of a Python file, or the file cannot be read.
    """
    return {name: _text(folder / name) for name in names}


def _text(path: Path) -> str:
    if path.suffix != ENDING:
        raise BlockProblem(f"Blocks are defined in a file that ends with {ENDING}, but got {str(path)!r}.")
    try:
        return source.read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BlockProblem(f"The file of blocks {path} cannot be read: {error}.") from error


def load(files: Mapping[str, str]) -> None:
    """Register the blocks of `files`, texts by the file's name. A text that was loaded before is not run again.

    Raises BlockProblem if a file raises an error, registers no block, or takes the name of another block.
    """
    for path, text in files.items():
        name = source.module_name("blocks", text)
        if name not in sys.modules:
            _run(name, path, text)


def of_file(path: Path) -> list[BlockType]:
    """The blocks that the file `path` registers; it is run unless it was before. Raises BlockProblem as `load`."""
    text = _text(path)
    load({str(path): text})
    return registered(source.module_name("blocks", text))


def registered(module: str) -> list[BlockType]:
    """The blocks that the module of this name has registered."""
    return [kind for kind in all_blocks() if kind.module.__module__ == module]


def _run(name: str, path: str, text: str) -> ModuleType:
    block_types()  # ours first, so that a file that takes one of their names is the one that fails
    try:
        module = source.run(name, path, text, SECONDS)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        forget(name)
        again = TWICE.format(path) if "are called" in str(error) else ""
        raise BlockProblem(f"The file of blocks cannot be used:\n{source.own_traceback(error, path)}{again}") from error
    if wrong := _wrong(registered(name)):
        forget(name)
        del sys.modules[name]
        raise BlockProblem(f"{path} {wrong}.")
    return module


def _wrong(found: list[BlockType]) -> str | None:
    """Why a file that registered the blocks `found` cannot be used; None if it can."""
    if not found:
        return "registers no block. Decorate a class with @primitive of searchspace.registry"
    for kind in found:
        if any(other.name == kind.name and other.role != kind.role for other in all_blocks()):
            return f"registers {kind.name!r}, but a block of another role has this name"
        if kind.holds_no_blocks and getattr(kind.module.cost, "__func__", None) is PROMISED:
            return f"registers {kind.name!r} without a cost. Define the class method `cost(cls, config, shape)`"
    return None


PROMISED = vars(Primitive)["cost"].__func__
TWICE = "\nA block needs a name of its own. If {} was changed after this process had loaded it, start a new process."
