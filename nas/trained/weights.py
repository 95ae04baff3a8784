"""Reads trained weights: exported files, checkpoints, exported folders and trials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
        hint = "Name a file of weights (--weights FILE, in Python `weights`), or train it first with `nas train`."
    else:
        hint = (
            "Export it with its weights (--weights, in Python `formats='yaml,safetensors'`), so that a "
            f"{WEIGHTS} file is next to it, or keep checkpoints in the study."
        )
    raise UsageError(f"{record.name} has no trained weights. {hint}")


def of_checkpoint(checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """The weights in a checkpoint. Raises NasError if it is missing, damaged or another kind of file."""
    from nas.training import checkpoints

    try:
        found = checkpoints.weights(checkpoint)
    except checkpoints.CheckpointLost as error:
        raise NasError(str(error)) from None
    except (KeyError, TypeError, IndexError):
        found = None
    if not isinstance(found, Mapping):
        raise NasError(
            f"{checkpoint.uri} is not a checkpoint of a training: it has no weights under 'model'. "
            f"Give other weights as a {WEIGHTS} file."
        )
    return found


def fill(model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Load `weights` into `model`. Raises NasError if they belong to another architecture; the message names how."""
    try:
        model.load_state_dict(dict(weights))
    except RuntimeError as error:
        first = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise NasError(f"The weights do not fit the architecture {name}. {first}") from None


def _of_training(path: Path) -> Mapping[str, Tensor]:
    """The weights of the best checkpoint of a training."""
    return of_checkpoint(read_training(path).best)


class Recording(NamedTuple):
    """What `training.json` holds. best, last: checkpoints, where the folder lies now."""

    architecture: str
    points: list[Mapping[str, Any]]
    curve: list[tuple[int, float]]
    best: Checkpoint
    last: Checkpoint
    best_step: int


def read_training(path: Path) -> Recording:
    """Read the `training.json` of a folder, which may have moved. Raises NasError if it cannot be understood."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        kept = [
            Checkpoint(str(path.parent.absolute() / Path(found[name]["uri"]).name), str(found[name]["sha256"]))
            for name in ("best", "last")
        ]
        curve = [(int(step), float(loss)) for step, loss in found["curve"]]
        points: list[Mapping[str, Any]] = [
            {"step": int(each["step"]), "metrics": dict(each["metrics"])} for each in found["points"]
        ]
        return Recording(str(found["architecture"]), points, curve, kept[0], kept[1], int(found["best_step"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NasError(f"{path} is not the record of a training: {type(error).__name__}: {error}.") from None


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
