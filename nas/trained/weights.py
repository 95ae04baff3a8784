"""Reads trained weights: exported files, checkpoints, exported folders and trials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import NasError, UsageError
from nas.trained.recorded import TRAINING, WEIGHTS, Recorded, find
from nas.work import Checkpoint

if TYPE_CHECKING:
    from torch import Tensor, nn

CHECKPOINT = ".pt"


def of_reference(reference: str | Path, storage: str | None = None) -> Mapping[str, Tensor]:
    """The state dict in a .safetensors file or a checkpoint (.pt), of an exported file or folder, or of STUDY:TRIAL.

    Raises UsageError if there is none, NasError if it cannot be read.
    """
    path = Path(reference)
    if path.suffix in (WEIGHTS, CHECKPOINT):
        return _of_file(path)
    return of_record(find(str(reference), storage))


def of_record(record: Recorded) -> Mapping[str, Tensor]:
    """The trained weights of `record`. Raises UsageError if none are recorded, NasError if they cannot be read."""
    if record.file is not None:
        return _of_training(record.file) if record.file.name == TRAINING else _of_file(record.file)
    if record.checkpoint is not None:
        return of_checkpoint(record.checkpoint)
    if record.task is None:
        hint = "Name weights with --weights FILE, or train it first with `nas train`."
    else:
        hint = f"Export it with --weights, so that a {WEIGHTS} file is next to it, or keep checkpoints in the study."
    raise UsageError(f"{record.name} has no trained weights. {hint}")


def of_checkpoint(checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """The weights in a checkpoint. Raises NasError if it is missing or damaged."""
    from nas.training import checkpoints

    try:
        return checkpoints.weights(checkpoint)
    except checkpoints.CheckpointLost as error:
        raise NasError(str(error)) from None


def fill(model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Load `weights` into `model`. Raises NasError if they belong to another architecture; the message names how."""
    try:
        model.load_state_dict(dict(weights))
    except RuntimeError as error:
        first = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise NasError(f"The weights do not fit the architecture {name}. {first}") from None


def _of_training(path: Path) -> Mapping[str, Tensor]:
    """The weights of the best checkpoint of a training."""
    found = json.loads(path.read_text())["best"]
    return of_checkpoint(Checkpoint(str(path.parent / Path(found["uri"]).name), found["sha256"]))


def _of_file(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise UsageError(f"There is no file {str(path)!r} with weights.")
    if path.suffix == CHECKPOINT:
        return of_checkpoint(Checkpoint(str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise NasError(f"{path} is not a {WEIGHTS} file: {error}.") from None
