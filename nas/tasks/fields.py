"""The requirements of a task for an architecture: fields such as the vocabulary, and blocks that can stream."""

from __future__ import annotations

from collections.abc import Iterator

from nas.tasks.contract import Task
from searchspace import registry
from searchspace.language.holes import describe
from searchspace.language.language import ALTERNATIVES
from searchspace.language.traversal import children
from searchspace.model.architecture import Architecture
from searchspace.tree import Block, Hole, Scalar, Value


def check(task: Task, root: Block) -> None:
    """Raise ValueError unless the architecture with this `root` fits `task`; the message names all differences."""
    check_streaming(task, root)
    wrong = []
    for field, expected in task.requires().items():
        found = root.name if field == "kind" else root.fields.get(field)
        if found != expected:
            wrong.append(f"{field}: {expected}, but the architecture has {written_field(field, found)}")
    if wrong:
        raise ValueError(f"The task {type(task).__name__} needs {'; '.join(wrong)}.")


def written_field(name: str, value: Value) -> str:
    """A field as messages have it: `vocabulary: 256`, or `no vocabulary`."""
    if value is None:
        return f"no {name}"
    return f"{name}: {describe(value) if isinstance(value, Hole) else value}"


def check_streaming(task: Task, root: Block) -> None:
    """Raise ValueError if `task` trains on consecutive segments and a block below `root` cannot read in pieces.

    root: of an architecture or of a space, which may have holes. The message names all such blocks.
    """
    if task.segments == 1:
        return
    kinds = registry.block_types("block")
    blocks = sorted({name for name in _names(root) if name in kinds and not kinds[name].module.capabilities.streaming})
    if blocks:
        raise ValueError(
            f"The task {type(task).__name__} has segments: {task.segments}, so every block must read its input in "
            f"pieces, but {', '.join(blocks)} cannot. Use other blocks, or segments: 1. `nas blocks NAME` says what a "
            "block can do."
        )


def _names(value: Value) -> Iterator[str]:
    """The names of all blocks in `value`."""
    if isinstance(value, Block):
        yield value.name
    for below in children(value):
        yield from _names(below)


BYTES: dict[str, Scalar] = {"vocabulary": 256}  # for a file that leaves its vocabulary to a task, where there is none


def decided(task: Task) -> dict[str, Scalar]:
    """The fields that a space or an architecture may leave out, because `task`, which is prepared, decides them."""
    return {name: value for name, value in task.requires().items() if name != "kind"}


INSTEAD = {**ALTERNATIVES, "classes": "tokens", "tokens": "classes"}  # a model has one of two: what it reads, returns


def fitted(architecture: Architecture, task: Task) -> Architecture:
    """`architecture` with the fields that `task`, which is prepared, decides, and without those that exclude them."""
    root, given = architecture.root, decided(task)
    excluded = {INSTEAD.get(name) for name in given} - given.keys()
    kept = {name: value for name, value in root.fields.items() if name not in excluded}
    return Architecture.from_block(Block(root.name, {**kept, **given}))


def suited(architecture: Architecture) -> str:
    """The name of a task that can train a model of this kind, with data that every machine has.

    Raises ValueError for an encoder that returns vectors, because no task scores those.
    """
    fields = architecture.root.fields
    match architecture.root.name:
        case "decoder":
            return "language_model"
        case "encoder_decoder":
            return "reversal"
    if fields["tokens"]:
        return "masked_language_model"
    if fields["classes"] is None:
        raise ValueError(
            "no task scores an encoder that returns vectors; give it classes, or tokens: true to predict its tokens."
        )
    return "digits" if fields["vocabulary"] is None else "disturbed_text"
