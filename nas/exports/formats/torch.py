"""Programs of torch.export: the prompt, and a decode step with the state as inputs and outputs."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.exports.graphs import Programs, programs
from nas.exports.header import inside
from nas.exports.registry import export_format
from nas.exports.winner import Winner

FOLDER = "torch"


@export_format("torch")
class TorchExport:
    """program.pt2 and, if the model keeps a state, decode.pt2. `torch.export.load(file).module()` runs them."""

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """Raises UsageError that names a block which cannot be exported, NasError if the checkpoint is missing."""
        made = programs(winner.architecture, winner.weights())
        found = {inside(path, FOLDER, "program.pt2"): saved(made.prompt)}
        if made.decode is not None:
            found[inside(path, FOLDER, "decode.pt2")] = saved(made.decode)
        return found | {inside(path, FOLDER, "README.md"): about(made).encode()}


def saved(program: Any) -> bytes:
    """A program as the bytes of its file."""
    import torch

    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def about(made: Programs) -> str:
    """How to call the programs."""
    lines = ["# Programs of torch.export", "", f"`program.pt2`: {', '.join(made.inputs)} -> logits"]
    if made.decode is None:
        return "\n".join([*lines, "", f"There is no decode step: {made.why_no_decode}."]) + "\n"
    lines[-1] += " and the state after them"
    lines += ["", "`decode.pt2`: one token [B, 1] and the state -> logits and the next state", ""]
    return "\n".join([*lines, "The tensors of the state, in order:", "", *(f"- {name}" for name in made.states)]) + "\n"
