"""Which of the tasks that come with the product suits an architecture, and the architecture made to fit it."""

from __future__ import annotations

from nas.tasks.contract import Task
from searchspace.model.architecture import Architecture
from searchspace.tree import Block


def suited(architecture: Architecture) -> str:
    """The name of a task that a model of this kind can be trained on, with data that is on every machine.

    Raises ValueError for an encoder that gives vectors alone: no task scores those.
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
            "no task scores an encoder that gives vectors; give it classes, or tokens: true to predict its tokens."
        )
    return "digits" if fields["vocabulary"] is None else "disturbed_text"


def fitted(architecture: Architecture, task: Task) -> Architecture:
    """`architecture` with the fields that `task`, which is prepared, asks for, such as its vocabulary."""
    root, asked = architecture.root, task.requires()
    return Architecture.from_block(Block(root.name, {**root.fields, **{k: asked[k] for k in asked if k != "kind"}}))
