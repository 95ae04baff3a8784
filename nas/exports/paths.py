"""The paths of the files of an export: next to a YAML file, or in a folder."""

from __future__ import annotations

from pathlib import Path

ARCHITECTURE = "architecture.yaml"  # in a folder
TRAINING = "training.json"  # in the folder of a training: its evaluations and checkpoints
MODEL = "model"


def beside(path: Path, suffix: str) -> Path:
    """The file with another ending next to `path`, that of the YAML file: `best.py`, or `folder/model.py`."""
    return path.with_name(MODEL + suffix) if path.name == ARCHITECTURE else path.with_suffix(suffix)


def inside(path: Path, folder: str, name: str) -> Path:
    """The file `name` of a format that writes a folder: `best-huggingface/config.json`, or `folder/huggingface/..`."""
    return path.parent / (folder if path.name == ARCHITECTURE else f"{path.stem}-{folder}") / name
