"""Evaluates trained weights on held-out data, as a unit of a search does."""

from __future__ import annotations

from pathlib import Path

import torch

from nas import tasks
from nas.location import CACHE
from nas.tasks.contract import Split
from nas.trained import weights as files
from nas.trained.recorded import Recorded
from nas.trained.settings import Settings, check_fits
from nas.training import unit
from nas.training.determinism import deterministic
from nas.training.loop import Deadline, Training
from nas.training.recipe import Recipe
from searchspace.model.build import build


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
