"""Blocks of a user's own: files that register blocks when they are run, here and on every worker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from nas.errors import UsageError
from nas.own import source
from searchspace.contract import Primitive
from searchspace.registry import BlockType, all_blocks, block_types, forget

ENDING = ".py"
TWICE = "\nA block needs a name of its own. If {} was changed after this process had loaded it, start a new process."


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
    return _registered(source.module_name("blocks", text))


def _registered(module: str) -> list[BlockType]:
    return [kind for kind in all_blocks() if kind.module.__module__ == module]


def _run(name: str, path: str, text: str) -> None:
    block_types()  # ours first, so that a file that takes one of their names is the one that fails
    try:
        source.run(name, path, text)
        if wrong := _wrong(_registered(name)):
            del sys.modules[name]
            raise BlockProblem(f"{path} {wrong}.")
    except (Exception, SystemExit) as error:
        forget(name)
        if isinstance(error, BlockProblem):
            raise
        again = TWICE.format(path) if "are called" in str(error) else ""
        raise BlockProblem(f"The file of blocks cannot be used:\n{source.own_traceback(error, path)}{again}") from error


def _wrong(found: list[BlockType]) -> str | None:
    """Why a file that registered the blocks `found` cannot be used; None if it can."""
    if not found:
        return "registers no block. Decorate a class with @primitive of searchspace.registry"
    for kind in found:
        if any(other.name == kind.name and other.role != kind.role for other in all_blocks()):
            return f"registers {kind.name!r}, but a block of another role has this name"
        if kind.holds_no_blocks and getattr(kind.module.cost, "__func__", None) is vars(Primitive)["cost"].__func__:
            return f"registers {kind.name!r} without a cost. Define the class method `cost(cls, config, shape)`"
    return None
