"""An architecture leaves a study as a file: YAML that builds, its origin in the header, and its weights."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nas import report as reports
from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine import judgement
from nas.engine.finals import Finalist, Finals, Report
from nas.errors import NasError, UsageError
from nas.metrics import current
from nas.report.depth import at_trial_depth
from nas.store import Store, Study, Trial, UnitState
from nas.work import Checkpoint
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost

if TYPE_CHECKING:
    from torch import Tensor

PACKAGES = ("tessera-nas", "torch", "ray", "optuna", "sqlalchemy")
ANCESTORS = 20  # that the header names at most
WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Export:
    """A file to be written: `text` is YAML with its header, `weights` the bytes of a safetensors file or None."""

    trial: int
    text: str
    weights: bytes | None


def best_number(store: Store, study: Study) -> int:
    """The winner of the finals, as a trial of the search; without finals the best trial. Raises NasError if none is."""
    report = _report(store, study)
    if report:
        return report.winner.number
    best = reports.best(store, study, None, 1)
    if not best:
        raise NasError(f"No trial of study {study.name!r} has finished yet, so there is none to export.")
    return best[0].number


def export(store: Store, study: Study, number: int, *, weights: bool = False) -> Export:
    """Trial `number` as a file. With `weights` those of its best final seed, else of its last rung.

    Raises NasError when its checkpoint is gone.
    """
    trial = store.trial(study.id, number)
    architecture = Architecture.parse(trial.architecture, f"{study.name}:{number}")
    trained = _trained(store, study, trial)
    header = _header(store, study, trial, trained, architecture)
    lines = yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=110).splitlines()
    text = "".join(f"# {line}\n" for line in lines) + architecture.text()
    return Export(number, text, _weights(store, study, trained) if weights else None)


def write(export: Export, path: Path) -> list[Path]:
    """Write an export to `path`, and its weights beside it with the ending .safetensors -> the files.

    Raises UsageError for a path that cannot be one, NasError where it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it.")
    if path.suffix == WEIGHTS:
        raise UsageError(f"{path}: the architecture is YAML; its weights go beside it as {path.stem}{WEIGHTS}.")
    files = [(path, export.text.encode())]
    if export.weights is not None:
        files.append((path.with_suffix(WEIGHTS), export.weights))
    for name, content in files:
        write_whole(name, content)
    return [name for name, _ in files]


def write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise NasError(f"Could not write {path}: {error.strerror}.") from None


def _report(store: Store, study: Study) -> Report | None:
    """What the finals of the study show; None without finals."""
    config = SearchConfig(**study.config)
    return Finals(config, store, study, factory.objectives(config)).report()


def _trained(store: Store, study: Study, trial: Trial) -> Trial:
    """The trial whose weights stand for `trial`: the best seed of the finals if it was there, else itself."""
    report = _report(store, study)
    entrant = _entrant(report, trial.architecture_hash)
    if entrant is None:
        return trial
    objective = factory.objectives(SearchConfig(**study.config))[0]
    _, number = min((objective.minimised(value), number) for value, number in zip(entrant.validation, entrant.trials))
    return store.trial(study.id, number)


def _entrant(report: Report | None, architecture: str) -> Finalist | None:
    """Whoever entered the finals with the architecture of this hash."""
    entrants = report.finalists if report else ()
    return next((each for each in entrants if each.architecture.hash == architecture), None)


def _header(store: Store, study: Study, trial: Trial, trained: Trial, architecture: Architecture) -> dict[str, Any]:
    config = SearchConfig(**study.config)
    shape = at_trial_depth(store, study, trial.number, factory.shape(config))
    costs = cost(architecture, shape).numbers()
    done = [unit for unit in store.units(study.id, trial.number) if unit.state is UnitState.DONE]
    header: dict[str, Any] = {
        "made_by": "Tessera (tessera-nas)",
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "architecture": architecture.hash,
        "study": study.name,
        "trial": trial.number,
        "lineage": [f"trial {trial.number} ({trial.operator})", *_lineage(store, study, trial)],
        "search": {
            "state": trial.state.value,
            "seed": trial.seed,
            "steps": done[-1].steps if done else 0,
            "objectives": dict(trial.values),
            "metrics": current(store.metrics(study.id, trial.number, done[-1].rung)) if done else {},
        },
    }
    if trained is not trial:
        header["finals"] = _finals(store, study, trained, architecture)
    return header | {
        "costs": {"length": shape.length, "parameters": costs["parameters"], "flops": costs["flops"]},
        "task": config.task.written(),
        **({"vocabulary": vocabulary} if (vocabulary := factory.vocabulary(config)) else {}),
        "data_sha256": study.data_hash,
        "recipe": dict(config.recipe) or "the defaults",
        "environment": _environment(store, study, trained),
    }


def _finals(store: Store, study: Study, trained: Trial, architecture: Architecture) -> dict[str, Any]:
    """The seed whose weights are exported, all seeds, and for the winner the verdict."""
    report = _report(store, study)
    finals: dict[str, Any] = {
        "trial": trained.number,
        "seed": trained.seed,
        "steps": store.units(study.id, trained.number)[-1].steps,
        "metrics": current(store.metrics(study.id, trained.number, 0)),
    }
    entrant = _entrant(report, architecture.hash)
    if report and entrant:
        finals["all_seeds"] = {
            "objective": report.objective,
            "validation": list(entrant.validation),
            "test": list(entrant.test),
        }
        if entrant is report.winner:
            finals["verdict"] = judgement.sentence(report).removeprefix("Verdict: ")
    return finals


def _environment(store: Store, study: Study, trained: Trial) -> dict[str, Any]:
    """Where it was trained, by which Tessera the study was begun, and what exports it."""
    devices = sorted({unit.device for unit in store.units(study.id, trained.number) if unit.device})
    return {
        "device": ", ".join(devices) or "unknown",
        "study_begun_with": f"tessera-nas {study.version}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _lineage(store: Store, study: Study, trial: Trial) -> list[str]:
    """The trial's ancestors, nearest first, each with the operator that made it."""
    lines: list[str] = []
    queue, seen = list(trial.parents), {trial.number}
    while queue and len(lines) < ANCESTORS:
        number = queue.pop(0)
        if number in seen:
            continue
        seen.add(number)
        parent = store.trial(study.id, number)
        lines.append(f"trial {number} ({parent.operator}, {parent.architecture_hash[:12]})")
        queue += parent.parents
    return lines


def _weights(store: Store, study: Study, trained: Trial) -> bytes:
    from nas.training import checkpoints

    done = [unit for unit in store.units(study.id, trained.number) if unit.checkpoint_uri]
    if not done:
        raise NasError(f"Trial {trained.number} has no checkpoint: it was trained with `checkpoints: null`, or failed.")
    last = done[-1]
    try:
        state = checkpoints.weights(Checkpoint(last.checkpoint_uri or "", last.checkpoint_sha256 or ""))
    except checkpoints.CheckpointLost as error:
        raise NasError(f"The weights of trial {trained.number} cannot be exported. {error}") from None
    return packed(state)


def packed(state: Mapping[str, Tensor]) -> bytes:
    """A state dict as the bytes of a safetensors file."""
    from safetensors.torch import save

    # A tied embedding is one tensor under two names, which safetensors refuses; a copy of each loads the same.
    return save({name: value.detach().clone().contiguous() for name, value in state.items()})
