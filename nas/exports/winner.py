"""A trial to export: its architecture, its origin, and its trained weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from nas import report as reports
from nas.errors import NasError
from nas.exports.header import TRAINING
from nas.exports.origin import StoredArchitecture, costs_at, origin, stored
from nas.finals.verdict import EntrantResult, Verdict
from nas.numbers import FIRST_FINAL, address_of, name_of
from nas.store import Reader, Study, Trial
from nas.work import Checkpoint
from searchspace.cost import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from nas.tasks.vocabulary import Vocabulary
    from nas.trained.recorded import Recorded
    from searchspace.model.architecture import Architecture


@dataclass(frozen=True)
class Winner:
    """The data for a format. origin: the header, plain data. weights: loads the state dict; raises NasError.

    source: has the text of the architecture, which is enough for YAML.
    """

    trial: int
    source: Architecture | StoredArchitecture
    origin: Mapping[str, Any]
    weights: Callable[[], Mapping[str, Tensor]]
    final: int | None = None  # its number among the finals, from 1; None for a trial of the search

    @property
    def name(self) -> str:
        """What people call it: trial 7, or final 2."""
        return name_of(self.trial)

    @property
    def address(self) -> str:
        """What follows the name of its study: 7, or final-2."""
        return address_of(self.trial)

    @property
    def architecture(self) -> Architecture:
        """The parsed architecture. Raises SpaceError or BlockProblem if a stored one cannot be read."""
        return self.source.architecture if isinstance(self.source, StoredArchitecture) else self.source

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary in the header; None if there is none."""
        from nas.tasks.vocabulary import Vocabulary

        found = self.origin.get("vocabulary")
        return None if found is None else Vocabulary.from_dict(found)


def best_number(store: Reader, study: Study) -> int:
    """The trial that won the finals; without finals the best trial. Raises NasError if no trial has finished."""
    finals = reports.verdict(store, study)
    if finals:
        return finals.winner.trial
    best = reports.best(store, study, None, 1)
    if not best:
        raise NasError(f"No trial of study {study.name!r} has finished yet, so there is none to export.")
    return best[0].number


def of_record(record: Recorded) -> Winner:
    """A file, an exported folder or the folder of a training as a winner. `weights` raises NasError if it has none."""
    from nas.trained import weights

    found = dict(record.header)
    found.setdefault("vocabulary", record.vocabulary)
    if record.file is not None and record.file.name == TRAINING:  # the header states what was planned
        kept = weights.read_training(record.file)
        metrics: Mapping[str, float] = next(
            (each["metrics"] for each in kept.points if each["step"] == kept.best_step), {}
        )
        found["search"] = {**found.get("search", {}), "steps": kept.best_step, "metrics": dict(metrics)}
        found["costs"] = _costs(record.architecture, dict(found.get("costs") or {}), metrics)
    final = None if found.get("final") is None else int(found["final"])
    return Winner(
        int(found.get("trial") or 0) if final is None else FIRST_FINAL + final - 1,
        record.architecture,
        {name: value for name, value in found.items() if value is not None},
        lambda: weights.of_record(record),
        final,
    )


def _costs(architecture: Architecture, known: Mapping[str, int], metrics: Mapping[str, float]) -> dict[str, int]:
    """The costs as `nas.exports.origin` writes them, for the length of the task that `known` names."""
    from searchspace.model.build import cost

    shape = Shape(length=known.get("length", Shape().length)).at_depth(metrics)
    return costs_at(shape.length, cost(architecture, shape))


def winner(store: Reader, study: Study, number: int) -> Winner:
    """Trial `number`. Raises UsageError if there is none; `weights` needs the store to be open."""
    trial = store.trial(study.id, number)
    finals = reports.verdict(store, study)
    entrants = finals.entrants if finals else ()
    entrant = next((each for each in entrants if each.hash == trial.architecture_hash), None)
    trained = _trained(store, study, trial, finals, entrant)
    source = stored(store, study, trial)
    header = origin(store, study, trial, trained, source, finals, entrant)
    return Winner(trial.number, source, header, partial(_weights, store, study, trained), trial.final)


def _trained(store: Reader, study: Study, trial: Trial, finals: Verdict | None, entrant: EntrantResult | None) -> Trial:
    """The run whose weights are exported: the best seed of the longest finals, or the trial itself without finals."""
    if finals is None or entrant is None:
        return trial
    steps = max((steps for steps, trials in entrant.trials.items() if trials), default=None)
    if steps is None:
        return trial
    best = max if finals.direction == "maximize" else min
    _, number = best(zip(entrant.validation[steps], entrant.trials[steps]))
    return store.trial(study.id, number)


def _weights(store: Reader, study: Study, trained: Trial) -> Mapping[str, Tensor]:
    from nas.training import checkpoints

    kept = [unit for unit in store.units(study.id, trained.number) if unit.checkpoint_uri]
    if not kept:
        raise NasError(
            f"{trained.name.capitalize()} has no checkpoint: it was trained with `checkpoints: null`, or failed."
        )
    last = kept[-1]
    try:
        return checkpoints.weights(Checkpoint(last.checkpoint_uri or "", last.checkpoint_sha256 or ""))
    except checkpoints.CheckpointLost as error:
        some = study.config.get("keep") == "best"
        why = (
            " With `keep: best` a study keeps those of its front and its finals; `keep: last` keeps all."
            if some
            else ""
        )
        raise NasError(f"The weights of {trained.name} cannot be exported. {error}{why}") from None
