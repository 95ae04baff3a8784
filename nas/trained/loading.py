"""Loads a trained model with its vocabulary and its task, and evaluates it as a unit of a search does."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from nas import tasks
from nas.location import CACHE
from nas.tasks.contract import Split, Task
from nas.tasks.vocabulary import Vocabulary
from nas.trained import weights as files
from nas.trained.recorded import Recorded, find
from nas.trained.settings import Settings, check_fits
from nas.training import unit
from nas.training.determinism import deterministic
from nas.training.loop import Deadline, Training
from nas.training.recipe import Recipe
from searchspace.model.build import build


class Loaded(NamedTuple):
    """A model with its trained weights in evaluation mode, its vocabulary and its task, which is not yet prepared.

    `vocabulary` and `task` are None if they are not recorded. `task.prepare(None)` reads the task's data.
    """

    model: nn.Module
    vocabulary: Vocabulary | None
    task: Task | None


def load(reference: str, weights: str | Path | None = None, storage: str | None = None) -> Loaded:
    """The trained model of an exported file or folder, or of STUDY:TRIAL. weights: another file of weights.

    Raises UsageError, StoreError or SpaceError if there is no such architecture, NasError if the weights cannot be
    read.
    """
    return of_record(find(reference, storage), weights, storage)


def of_record(record: Recorded, weights: str | Path | None = None, storage: str | None = None) -> Loaded:
    """As `load`, of a record that was read. Raises NasError if its weights cannot be read or do not fit."""
    state = files.of_record(record) if weights is None else files.of_reference(weights, storage)
    model = build(record.architecture)
    files.fill(model, state, record.name)
    vocabulary = None if record.vocabulary is None else Vocabulary.from_dict(record.vocabulary)
    task = None if record.task is None else tasks.loaded(dict(record.task), record.task_source)
    return Loaded(model.eval(), vocabulary, task)


def evaluate(
    record: Recorded, settings: Settings, split: Split, weights: str | Path | None = None, storage: str | None = None
) -> dict[str, float]:
    """The metrics of the trained model of `record` on `split`. weights: another file of weights.

    Raises UsageError if the architecture does not fit the task, NasError if the weights cannot be read or do not fit.
    """
    task = tasks.load_prepared(settings.task, settings.source, CACHE)
    check_fits(record.architecture, task)
    state = files.of_record(record) if weights is None else files.of_reference(weights, storage)
    device = torch.device(settings.device)
    model = build(record.architecture)
    files.fill(model, state, record.name)
    recipe = Recipe.read(settings.recipe)
    with deterministic(settings.threads, device):
        training = Training(model.to(device), task, recipe, settings.horizon, settings.seed, device)
        return dict(unit.evaluate(training, split, Deadline(None)).metrics)
